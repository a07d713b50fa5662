"""Mailboxes: the definitions of queues.

Revision ID: 0006
Revises: 0005
"""

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

UP = (
    """
    CREATE TABLE runstate.mailboxes (
      space_id text COLLATE "C" NOT NULL,
      id uuid NOT NULL,
      name text COLLATE "C" NOT NULL,
      mode text NOT NULL CONSTRAINT mode_known CHECK (mode IN ('WORK', 'INBOX')),
      backlog_limit int CONSTRAINT backlog_limit_counts CHECK (backlog_limit >= 1),
      max_attempts smallint NOT NULL CONSTRAINT max_attempts_bounded CHECK (max_attempts BETWEEN 1 AND 100),
      created_at timestamptz NOT NULL,
      PRIMARY KEY (space_id, id)
    )
    """,
    "CREATE UNIQUE INDEX mailboxes_name ON runstate.mailboxes (space_id, name)",
    "CREATE INDEX mailboxes_newest ON runstate.mailboxes (space_id, created_at, id)",
)
DOWN = ("DROP TABLE runstate.mailboxes",)


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)
