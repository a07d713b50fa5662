"""Claims. One holder per (scope, key); a later holder always has a larger generation.

States: FREE → HELD → FREE, by acquire and by release, lapse or the end of the scope. Promises: at most one
live lease per key; generations grow by one with every new owner and never go back; a lapsed lease is never
revived; a stale token changes nothing and is told STALE_CLAIM. Tables: claims, epoch. Locks: gate (shared),
idempotency key, then the key's row, or an advisory lock on the key while it has no row.
"""
