"""Who waits, and the indexes by which a run and a space are counted.

Revision ID: 0008
Revises: 0007
"""

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

UP = (
    # What the long polls of each replica are asleep for, told about once a second: a report, nothing decides
    # by it. Rows of a replica that is no longer alive count for nothing.
    """
    CREATE TABLE runstate.waits (
      space_id text COLLATE "C" NOT NULL,
      replica uuid NOT NULL,
      id bigint NOT NULL,
      kind text NOT NULL CONSTRAINT kind_is_a_word CHECK (kind <> ''),
      resource text COLLATE "C" NOT NULL,
      scope_id uuid NOT NULL,
      root_id uuid NOT NULL,
      units bigint,
      holder text,
      session text,
      since timestamptz NOT NULL,
      PRIMARY KEY (space_id, replica, id)
    ) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000)
    """,
    # By these finished tasks are counted without a look at the wide rows: those that stay as they are by when
    # they finished, so that a look counts what has come since the last one; failed ones can be redriven.
    """
    CREATE INDEX messages_finished ON runstate.messages (root_id, finished_at, ended, scope_id, space_id)
      WHERE task_key IS NOT NULL AND ended <> 'DEAD'
    """,
    """
    CREATE INDEX messages_failed ON runstate.messages (root_id, scope_id, space_id)
      WHERE task_key IS NOT NULL AND ended = 'DEAD'
    """,
    "DROP INDEX runstate.messages_dead",
    """
    CREATE INDEX messages_dead ON runstate.messages (mailbox_id, root_id, scope_id, space_id)
      WHERE ended = 'DEAD'
    """,
    # For lists and counts of a whole space, by an expression that no statement of the kernel has: while
    # tables are small, an index that begins with space_id seems as good to those as the primary key. It says
    # all that a look asks for, so that no other index is thought of there either.
    """
    CREATE INDEX messages_tasks ON runstate.messages ((CASE WHEN task_key IS NOT NULL THEN space_id END), seq)
      WHERE CASE WHEN task_key IS NOT NULL THEN space_id END IS NOT NULL
    """,
    """
    CREATE INDEX scopes_active ON runstate.scopes ((CASE WHEN effective = 'ACTIVE' THEN space_id END))
      WHERE CASE WHEN effective = 'ACTIVE' THEN space_id END IS NOT NULL
    """,
    """
    CREATE INDEX once_in_space ON runstate.once ((CASE WHEN state = 'HELD' THEN space_id END))
      WHERE CASE WHEN state = 'HELD' THEN space_id END IS NOT NULL
    """,
    """
    CREATE INDEX claims_in_space ON runstate.claims ((CASE WHEN held THEN space_id END))
      WHERE CASE WHEN held THEN space_id END IS NOT NULL
    """,
)
DOWN = (
    "DROP INDEX runstate.claims_in_space",
    "DROP INDEX runstate.once_in_space",
    "DROP INDEX runstate.scopes_active",
    "DROP INDEX runstate.messages_tasks",
    "DROP INDEX runstate.messages_dead",
    "CREATE INDEX messages_dead ON runstate.messages (mailbox_id) WHERE ended = 'DEAD'",
    "DROP INDEX runstate.messages_failed",
    "DROP INDEX runstate.messages_finished",
    "DROP TABLE runstate.waits",
)


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)
