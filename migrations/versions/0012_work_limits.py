"""Work limits, and the unfinished tasks that they bound.

Revision ID: 0012
Revises: 0011
"""

from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

UP = (
    """
    CREATE TABLE runstate.work_limits (
      space_id text COLLATE "C" NOT NULL,
      id uuid NOT NULL,
      scope_id uuid NOT NULL,
      name text COLLATE "C" NOT NULL,
      max_outstanding bigint NOT NULL CONSTRAINT max_is_positive CHECK (max_outstanding > 0),
      created_at timestamptz NOT NULL,
      PRIMARY KEY (space_id, id)
    )
    """,
    "CREATE UNIQUE INDEX work_limits_name ON runstate.work_limits (scope_id, name, space_id)",
    # Counted at submit, over the index: so nothing that ends a task has to lower a counter.
    "ALTER TABLE runstate.messages ADD COLUMN work_limit_id uuid",
    """
    CREATE INDEX messages_limited ON runstate.messages (work_limit_id)
      WHERE work_limit_id IS NOT NULL AND ended IS NULL
    """,
)
DOWN = (
    "DROP INDEX runstate.messages_limited",
    "ALTER TABLE runstate.messages DROP COLUMN work_limit_id",
    "DROP TABLE runstate.work_limits",
)


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)
