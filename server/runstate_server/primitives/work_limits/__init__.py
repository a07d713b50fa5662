"""Work limits. At most N unfinished tasks of a name in a scope and below it.

No states. Promises: the unfinished tasks submitted under a limit never exceed it, whoever submits at once; a
task that has ended, by itself or with its scope, counts no more at once; a task that was there already costs
nothing. Tables: work_limits. Locks: gate (shared), idempotency key, then the name in its scope (advisory) to
create; the limit's row to submit, in the order of ids.
"""
