"""Timers. Instants that the database keeps: each fires once, never early, whoever is up when it is due.

States: PENDING → FIRED → ACKED; PENDING → CANCELLED, by cancel or by the end of the scope; PENDING → EXPIRED,
by the scope's deadline. Promises: a timer fires once, at or after its time by the database's clock; whoever
meets one that is due fires it, so no process has to be up for it; its token is told only once it has fired; a
name leads to its timer for the life of the scope, whatever became of it. Table: timers. Locks: gate (shared),
idempotency key, the name in its scope (advisory) to create, then the timer's row.
"""
