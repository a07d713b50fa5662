"""Mailboxes. The definitions of queues: name, mode, how many attempts, how long a backlog.

No states. Promises: a name is unique in its space and keeps its mode; the settings that a worker declares
win; no message ever waits for a mailbox's row. Table: mailboxes. Locks: idempotency key, then the name
(advisory).
"""
