"""Scopes. The unit of cancellation, in trees of depth ≤ 32; a run is a root, joined by name or made by id.

States: ACTIVE → CANCELLED | COMPLETED | EXPIRED, for good. The end of a scope is the end of its subtree, at
once: nothing in it is granted or recorded after the end has been answered. At most one active run per name.
Tables: scopes, scope_tidies. Locks: gate (alone to end, shared to create a child), idempotency key, then a
run's name or the parent's row.
"""
