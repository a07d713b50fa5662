"""Permits: pools of N units that are lent out, and the line before them.

States: grants live → RELEASED, LAPSED; waiters WAITING → SIGNALED → GRANTED, CANCELLED or EXPIRED.
Promises: the units of live grants never exceed the pool's total, but after a resize below them; first come,
first served, a large request at the head is not overtaken; a lapsed lease is never revived; a waiter that is
gone holds nothing. Tables: pools, grants. Locks: gate (shared), idempotency key, the pool, its
grants, its waiters.
"""
