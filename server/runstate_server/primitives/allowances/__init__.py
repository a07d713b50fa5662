"""Allowances: so many units per window, in windows that are aligned to the Unix epoch.

Promises: a window never lets more through than its limit; what was consumed is not given back; those who wait
are granted in order, as soon as the window turns, and nobody overtakes them; a clock that goes back refills
nothing. Tables: allowances. Locks: gate (shared), idempotency key, the allowance, its waiters.
"""
