"""Budgets, their reservations, and the ledger.

Revision ID: 0010
Revises: 0009
"""

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

UP = (
    # One row under every reserve and settle: its sums stand in no index. Overrun alone has no bound of its
    # own: it is what was spent beyond the limit, and adds up.
    """
    CREATE TABLE runstate.budgets (
      space_id text COLLATE "C" NOT NULL,
      id uuid NOT NULL,
      name text COLLATE "C" NOT NULL,
      currency text COLLATE "C" NOT NULL CONSTRAINT currency_is_capitals CHECK (currency ~ '^[A-Z]{3}$'),
      scale smallint NOT NULL CONSTRAINT scale_bounded CHECK (scale BETWEEN 0 AND 9),
      limit_minor bigint NOT NULL
        CONSTRAINT limit_bounded CHECK (limit_minor BETWEEN 0 AND 1000000000000000000),
      reserved_minor bigint NOT NULL CONSTRAINT reserved_counts CHECK (reserved_minor >= 0),
      settled_minor bigint NOT NULL CONSTRAINT settled_counts CHECK (settled_minor >= 0),
      overrun_minor numeric(38, 0) NOT NULL CONSTRAINT overrun_counts CHECK (overrun_minor >= 0),
      hold_stale boolean NOT NULL,
      created_at timestamptz NOT NULL,
      PRIMARY KEY (space_id, id),
      CONSTRAINT books_balance CHECK (reserved_minor <= limit_minor - settled_minor)
    ) WITH (fillfactor = 20)
    """,
    "CREATE UNIQUE INDEX budgets_name ON runstate.budgets (name, space_id)",
    # reserved_minor: what is still reserved; of a STALE one what it was. held: whether the budget counts it
    # among its reserved money. message_id: the delivery for which the server reserved.
    """
    CREATE TABLE runstate.budget_reservations (
      space_id text COLLATE "C" NOT NULL,
      id uuid NOT NULL,
      budget_id uuid NOT NULL,
      scope_id uuid NOT NULL,
      message_id uuid,
      holder text NOT NULL,
      reserved_minor bigint NOT NULL
        CONSTRAINT reserved_bounded CHECK (reserved_minor BETWEEN 0 AND 1000000000000000000),
      held boolean NOT NULL,
      state text NOT NULL CONSTRAINT state_known CHECK (state IN ('ACTIVE', 'SETTLED', 'VOIDED', 'STALE')),
      settle_by timestamptz,
      created_at timestamptz NOT NULL,
      ended_at timestamptz,
      PRIMARY KEY (space_id, id),
      CONSTRAINT ended_has_time CHECK ((state IN ('SETTLED', 'VOIDED')) = (ended_at IS NOT NULL)),
      CONSTRAINT ended_is_empty CHECK (ended_at IS NULL OR reserved_minor = 0),
      CONSTRAINT active_is_held CHECK (state <> 'ACTIVE' OR held)
    ) WITH (fillfactor = 80)
    """,
    """
    CREATE INDEX reservations_open ON runstate.budget_reservations (budget_id, created_at, id)
      WHERE ended_at IS NULL
    """,
    """
    CREATE INDEX reservations_ended ON runstate.budget_reservations (budget_id, ended_at)
      WHERE ended_at IS NOT NULL
    """,
    """
    CREATE INDEX reservations_due ON runstate.budget_reservations (settle_by)
      WHERE state = 'ACTIVE' AND settle_by IS NOT NULL
    """,
    """
    CREATE INDEX reservations_due_in_budget ON runstate.budget_reservations (budget_id, settle_by)
      WHERE state = 'ACTIVE' AND settle_by IS NOT NULL
    """,
    """
    CREATE INDEX reservations_of_message ON runstate.budget_reservations (message_id)
      WHERE message_id IS NOT NULL AND ended_at IS NULL
    """,
    # Every change of a budget's money, for good. The sums of the three last amounts are the budget's.
    """
    CREATE TABLE runstate.budget_entries (
      space_id text COLLATE "C" NOT NULL,
      budget_id uuid NOT NULL,
      seq bigint GENERATED ALWAYS AS IDENTITY,
      id uuid NOT NULL,
      reservation_id uuid NOT NULL,
      scope_id uuid NOT NULL,
      kind text NOT NULL
        CONSTRAINT kind_known CHECK (kind IN ('reserve', 'settle', 'overrun', 'void', 'stale')),
      work_key text COLLATE "C",
      amount_minor bigint NOT NULL CONSTRAINT amount_counts CHECK (amount_minor >= 0),
      asked_minor bigint NOT NULL,
      left_minor bigint NOT NULL,
      state text NOT NULL,
      reserved_change bigint NOT NULL,
      settled_change bigint NOT NULL,
      overrun_change bigint NOT NULL,
      created_at timestamptz NOT NULL,
      PRIMARY KEY (space_id, id)
    )
    """,
    "CREATE INDEX entries_of_budget ON runstate.budget_entries (budget_id, seq)",
    """
    CREATE UNIQUE INDEX entries_work_key ON runstate.budget_entries (budget_id, kind, work_key, space_id)
      WHERE work_key IS NOT NULL
    """,
)
DOWN = (
    "DROP TABLE runstate.budget_entries",
    "DROP TABLE runstate.budget_reservations",
    "DROP TABLE runstate.budgets",
)


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)
