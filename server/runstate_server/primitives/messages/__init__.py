"""Messages. Sent once, delivered until settled, each delivery leased to one holder; also what a task is made
of.

States: READY → LEASED → ACKED | READY | DEAD; DEAD → READY by redrive; unsettled → EXPIRED | CANCELLED.
Promises: every acknowledged send is delivered, and has one recorded end or is DEAD with its last error;
maxAttempts is never exceeded, by nack or lapse; a lapsed lease makes a message deliverable at once; a stale
token changes nothing; an INBOX delivers each scope strictly in order of arrival, one unsettled at a time.
A task that needs resources is admitted with all of them in one commit, or with none, and holds none while it
waits; it neither blocks others nor is passed over for ever.
Tables: messages, queue_ready, queue_leased, queue_lanes, lane_waits, group_notices.
Locks: gates (sorted), idempotency key, the turn of a mailbox whose tasks need resources, an INBOX scope's
line, natural keys, the narrow rows, then what is needed and held: pools, allowances, budgets; never a
mailbox.
"""
