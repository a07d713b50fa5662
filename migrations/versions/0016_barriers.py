"""Barriers, and who has arrived at them.

Revision ID: 0016
Revises: 0015
"""

from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

UP = (
    """
    CREATE TABLE runstate.barriers (
      space_id text COLLATE "C" NOT NULL,
      id uuid NOT NULL,
      scope_id uuid NOT NULL,
      root_id uuid NOT NULL,
      name text COLLATE "C",
      state text COLLATE "C" NOT NULL
        CONSTRAINT state_known CHECK (state IN ('WAITING', 'RELEASED', 'CANCELLED')),
      epoch int NOT NULL CONSTRAINT epoch_counts CHECK (epoch > 0),
      target int NOT NULL,
      arrivals int NOT NULL CONSTRAINT arrivals_fit CHECK (arrivals BETWEEN 0 AND target),
      created_at timestamptz NOT NULL,
      PRIMARY KEY (space_id, id),
      CONSTRAINT released_is_full CHECK ((state = 'RELEASED') = (arrivals = target))
    ) WITH (fillfactor = 80)
    """,
    """
    CREATE UNIQUE INDEX barriers_name ON runstate.barriers (scope_id, name, space_id) WHERE name IS NOT NULL
    """,
    # As once_held; what a run's report shows, too.
    "CREATE INDEX barriers_waiting ON runstate.barriers (root_id, scope_id, id) WHERE state = 'WAITING'",
    # Of the present epoch: a reset forgets them.
    """
    CREATE TABLE runstate.barrier_arrivals (
      space_id text COLLATE "C" NOT NULL,
      barrier_id uuid NOT NULL,
      key text COLLATE "C" NOT NULL,
      arrived_at timestamptz NOT NULL,
      PRIMARY KEY (space_id, barrier_id, key)
    )
    """,
)
DOWN = (
    "DROP TABLE runstate.barrier_arrivals",
    "DROP TABLE runstate.barriers",
)


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)
