"""Tasks. Messages whose outcome is kept: one per (scope, mailbox, taskKey), and one result for all who ask.

States: QUEUED → RUNNING → SUCCEEDED | FAILED; QUEUED or RUNNING → EXPIRED | CANCELLED; FAILED → QUEUED by
redrive.
Promises: submitting again answers with the first task; exactly one outcome is recorded. Tables: messages
(owned by messages), task_subscribers. Locks: gates (sorted), idempotency key, task keys (sorted), backlogs,
work limits (by id), then what messages take.
"""
