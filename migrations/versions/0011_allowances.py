"""Allowances: so many units per window.

Revision ID: 0011
Revises: 0010
"""

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

UP = (
    # One row under every consumption: what changes with each stands in no index. `waited`: somebody may stand
    # in its line.
    """
    CREATE TABLE runstate.allowances (
      space_id text COLLATE "C" NOT NULL,
      id uuid NOT NULL,
      name text COLLATE "C" NOT NULL,
      units_limit bigint NOT NULL CONSTRAINT limit_is_positive CHECK (units_limit > 0),
      window_s bigint NOT NULL CONSTRAINT window_is_positive CHECK (window_s > 0),
      window_start timestamptz NOT NULL,
      consumed bigint NOT NULL CONSTRAINT consumed_counts CHECK (consumed >= 0),
      cooldown_until timestamptz,
      waited boolean NOT NULL,
      next_ticket bigint NOT NULL,
      created_at timestamptz NOT NULL,
      PRIMARY KEY (space_id, id)
    ) WITH (fillfactor = 20)
    """,
    "CREATE UNIQUE INDEX allowances_name ON runstate.allowances (name, space_id)",
    "CREATE INDEX allowances_waited ON runstate.allowances (space_id, id) WHERE waited",
)
DOWN = ("DROP TABLE runstate.allowances",)


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)
