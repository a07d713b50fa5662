"""Timers.

Revision ID: 0017
Revises: 0016
"""

from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

UP = (
    # The token is made with the timer and told once it has fired. A name leads to its row for the life of the
    # scope, whatever became of it.
    """
    CREATE TABLE runstate.timers (
      space_id text COLLATE "C" NOT NULL,
      id uuid NOT NULL,
      scope_id uuid NOT NULL,
      root_id uuid NOT NULL,
      name text COLLATE "C",
      state text NOT NULL CONSTRAINT state_known
        CHECK (state IN ('PENDING', 'FIRED', 'ACKED', 'CANCELLED', 'EXPIRED')),
      fire_at timestamptz NOT NULL,
      fired_at timestamptz,
      token text NOT NULL,
      created_at timestamptz NOT NULL,
      PRIMARY KEY (space_id, id),
      CONSTRAINT fired_has_time CHECK ((state IN ('FIRED', 'ACKED')) = (fired_at IS NOT NULL)),
      CONSTRAINT never_early CHECK (fired_at >= fire_at)
    ) WITH (fillfactor = 80)
    """,
    """
    CREATE UNIQUE INDEX timers_name ON runstate.timers (scope_id, name, space_id) WHERE name IS NOT NULL
    """,
    "CREATE INDEX timers_due ON runstate.timers (fire_at) WHERE state = 'PENDING'",
    # What a poll of a scope waits for, and what the end of a run or of a part of it ends.
    "CREATE INDEX timers_pending ON runstate.timers (root_id, scope_id, fire_at) WHERE state = 'PENDING'",
    "CREATE INDEX timers_fired ON runstate.timers (root_id, scope_id, fired_at, id) WHERE state = 'FIRED'",
)
DOWN = ("DROP TABLE runstate.timers",)


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)
