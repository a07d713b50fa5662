"""Scopes remember how much of each their end has ended, for whoever asks for it again.

Revision ID: 0015
Revises: 0014
"""

from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

# JSON text as the end answered it; null while active, and in scopes that ended with one above them.
UP = ("ALTER TABLE runstate.scopes ADD COLUMN contents text",)
DOWN = ("ALTER TABLE runstate.scopes DROP COLUMN contents",)


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)
