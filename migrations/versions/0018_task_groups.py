"""Task groups, their members, and the notices that a member has ended.

Revision ID: 0018
Revises: 0017
"""

from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

UP = (
    """
    CREATE TABLE runstate.task_groups (
      space_id text COLLATE "C" NOT NULL,
      id uuid NOT NULL,
      scope_id uuid NOT NULL,
      root_id uuid NOT NULL,
      mailbox_id uuid NOT NULL,
      condition text NOT NULL
        CONSTRAINT condition_known CHECK (condition IN ('FIRST_ACCEPTED', 'N_ACCEPTED', 'ALL_TERMINAL')),
      threshold int,
      expected_members int,
      members int NOT NULL CONSTRAINT members_counted CHECK (members >= 0),
      state text NOT NULL CONSTRAINT state_known CHECK (state IN ('OPEN', 'SEALED', 'FINALIZED')),
      outcome text CONSTRAINT outcome_known CHECK (outcome IN ('SUCCESS', 'FAILURE')),
      outcome_reason text,
      deadline timestamptz,
      created_at timestamptz NOT NULL,
      finalized_at timestamptz,
      PRIMARY KEY (space_id, id),
      CONSTRAINT threshold_of_accepted CHECK ((condition = 'ALL_TERMINAL') = (threshold IS NULL)),
      CONSTRAINT finalized_has_outcome CHECK ((state = 'FINALIZED') = (outcome IS NOT NULL)),
      CONSTRAINT finalized_has_time CHECK ((state = 'FINALIZED') = (finalized_at IS NOT NULL)),
      CONSTRAINT failure_has_reason CHECK ((outcome = 'FAILURE') = (outcome_reason IS NOT NULL))
    ) WITH (fillfactor = 50)
    """,
    """
    CREATE INDEX groups_due ON runstate.task_groups (deadline)
      WHERE state <> 'FINALIZED' AND deadline IS NOT NULL
    """,
    """
    CREATE INDEX groups_of_run ON runstate.task_groups (root_id, scope_id) WHERE state <> 'FINALIZED'
    """,
    # n: the order of joining. owned: the task lives in the group's scope, and is cancelled with it.
    """
    CREATE TABLE runstate.group_members (
      space_id text COLLATE "C" NOT NULL,
      task_id uuid NOT NULL,
      group_id uuid NOT NULL,
      n int NOT NULL,
      owned boolean NOT NULL,
      verdict text CONSTRAINT verdict_known CHECK (verdict IN ('ACCEPTED', 'REJECTED')),
      PRIMARY KEY (space_id, task_id, group_id)
    ) WITH (fillfactor = 80)
    """,
    "CREATE INDEX members_of_group ON runstate.group_members (group_id, n)",
    # Rows of their own, since whoever ends a member must not wait for its groups.
    """
    CREATE TABLE runstate.group_notices (
      space_id text COLLATE "C" NOT NULL,
      seq bigint GENERATED ALWAYS AS IDENTITY,
      group_id uuid NOT NULL,
      PRIMARY KEY (space_id, seq)
    )
    """,
    "CREATE INDEX notices_of_group ON runstate.group_notices (group_id)",
    "CREATE INDEX notices_order ON runstate.group_notices (seq)",
)
DOWN = (
    "DROP TABLE runstate.group_notices",
    "DROP TABLE runstate.group_members",
    "DROP TABLE runstate.task_groups",
)


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)
