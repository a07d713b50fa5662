"""Messages. Sent once, delivered until settled, each delivery leased to one holder; also what a task is made
of.

States: READY → LEASED → ACKED | READY | DEAD; DEAD → READY by redrive; unsettled → EXPIRED | CANCELLED.
Promises: every acknowledged send is delivered, and has one recorded end or is DEAD with its last error;
maxAttempts is never exceeded, by nack or lapse; a lapsed lease makes a message deliverable at once; a stale
token changes nothing; an INBOX delivers each scope strictly in order of arrival, one unsettled at a time.
Tables: messages, queue_ready, queue_leased, queue_lanes.
Locks: gates (sorted), idempotency key, an INBOX scope's line, natural keys, then the narrow rows; never a
mailbox.
"""
