"""Once: one recorded result per key.

Revision ID: 0004
Revises: 0003
"""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

UP = (
    """
    CREATE TABLE runstate.once (
      space_id text COLLATE "C" NOT NULL,
      scope_id uuid NOT NULL,
      key text COLLATE "C" NOT NULL,
      root_id uuid NOT NULL,
      state text NOT NULL CONSTRAINT state_known CHECK (state IN ('OPEN', 'HELD', 'DONE', 'FAILED')),
      attempts int NOT NULL CONSTRAINT attempts_counted CHECK (attempts >= 0),
      holder text,
      session text,
      token text,
      expires_at timestamptz,
      due_at timestamptz,
      last_error text,
      result text,
      created_at timestamptz NOT NULL,
      ended_at timestamptz,
      PRIMARY KEY (space_id, scope_id, key),
      CONSTRAINT held_has_holder CHECK ((state = 'HELD') = (holder IS NOT NULL)),
      CONSTRAINT held_has_token CHECK ((state = 'HELD') = (token IS NOT NULL)),
      CONSTRAINT held_has_lease CHECK ((state = 'HELD') = (expires_at IS NOT NULL AND due_at IS NOT NULL)),
      CONSTRAINT done_has_result CHECK ((state = 'DONE') = (result IS NOT NULL)),
      CONSTRAINT failed_has_error CHECK (state <> 'FAILED' OR last_error IS NOT NULL)
    ) WITH (fillfactor = 80)
    """,
    # expires_at is in no index, so renewals stay HOT; due_at follows it coarsely, written by grant and sweep
    # alone.
    "CREATE INDEX once_due ON runstate.once (due_at) WHERE state = 'HELD'",
    # In the order in which the end of a scope locks, so that it reads what is held in its run and no more.
    """
    CREATE INDEX once_held ON runstate.once (root_id, scope_id, key) WHERE state = 'HELD'
    """,
)
DOWN = ("DROP TABLE runstate.once",)


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)
