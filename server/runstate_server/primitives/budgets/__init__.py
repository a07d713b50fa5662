"""Budgets. Money in exact integers, reserved before it is spent and settled after; every change in a ledger.

States of a reservation: ACTIVE → SETTLED | VOIDED, by settle and void; ACTIVE → STALE, past its settleBy;
STALE → ACTIVE, by settling a part; STALE → SETTLED | VOIDED. Promises: settled + reserved ≤ limit, always;
what is spent beyond it is recorded as overrun; a settle or void happens once per workKey; the ledger is only
ever added to, and its sums are the budget's. Tables: budgets, budget_reservations, budget_entries. Locks:
gate (shared, reserve alone), idempotency key, then the name (advisory) or the budget's row, under which its
reservations change.
"""
