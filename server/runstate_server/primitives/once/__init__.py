"""Once. One recorded result per (scope, key), whoever asks and whoever dies.

States: OPEN → HELD → DONE | FAILED; HELD → OPEN by a failure with attempts left, a lapsed lease or the end of
the scope.
Promises: at most one live lease per key; a stale token changes nothing; DONE and FAILED are for good;
`attempts` counts recorded failures, never lapses. Table: once. Locks: gate (shared), idempotency key, then
the key's row, or an advisory lock on the key while it has no row.
"""
