"""Groups (of tasks). Several tasks with one outcome: enough of them accepted, or all of them over.

States: OPEN → SEALED → FINALIZED, the last with SUCCESS or FAILURE, once and for good. Promises: one outcome,
whoever is first of verdicts, members that end, the deadline and the end of the scope; what decides a group
cancels its members that are not over and gives back what they held, in the same commit; a verdict that comes
later is told so and changes nothing; a group whose members have all ended, however they did, is decided.
Tables: task_groups, group_members, group_notices (notices are left by messages), scopes (the one that a group
owns). Locks: gate (shared), idempotency key, the group's row, then what submitting and cancelling tasks take.
"""
