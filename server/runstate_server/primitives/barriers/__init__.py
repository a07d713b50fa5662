"""Barriers. Everybody waits until so many have arrived.

States: WAITING → RELEASED, by the last arrival; RELEASED, WAITING → WAITING, by a reset, in the next epoch;
WAITING → CANCELLED, by the end of the scope.
Promises: one key counts once in an epoch; exactly as many as the target are counted, and the barrier is
released once, with the last of them; whoever was counted is told so again, also after the release.
Tables: barriers, barrier_arrivals. Locks: gate (shared), idempotency key, then the barrier's row; the name
in its scope (advisory) to create.
"""
