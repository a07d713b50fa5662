"""Reports: who holds units in a run, and who has waited longest in a space, by indexes of their own.

Revision ID: 0014
Revises: 0013
"""

from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

UP = (
    """
    CREATE INDEX grants_in_space ON runstate.grants ((CASE WHEN ended IS NULL THEN space_id END), root_id)
      WHERE CASE WHEN ended IS NULL THEN space_id END IS NOT NULL
    """,
    """
    CREATE INDEX waiters_in_space
      ON runstate.line_waiters ((CASE WHEN state IN ('WAITING', 'SIGNALED') THEN space_id END), since)
      WHERE CASE WHEN state IN ('WAITING', 'SIGNALED') THEN space_id END IS NOT NULL
    """,
)
DOWN = (
    "DROP INDEX runstate.waiters_in_space",
    "DROP INDEX runstate.grants_in_space",
)


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)
