"""Messages and tasks: a task is a message whose outcome is kept, so one row is both.

Revision ID: 0007
Revises: 0006
"""

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

UP = (
    # The wide row, written at send and at the end. While it is unsettled it has exactly one narrow row, in
    # queue_ready or
    # in queue_leased; whoever deletes that row decides what becomes of the message.
    """
    CREATE TABLE runstate.messages (
      space_id text COLLATE "C" NOT NULL,
      id uuid NOT NULL,
      seq bigint GENERATED ALWAYS AS IDENTITY,
      mailbox_id uuid NOT NULL,
      scope_id uuid NOT NULL,
      root_id uuid NOT NULL,
      task_key text COLLATE "C",
      work_key text COLLATE "C",
      payload text NOT NULL,
      priority smallint NOT NULL CONSTRAINT priority_bounded CHECK (priority BETWEEN -100 AND 100),
      deadline timestamptz,
      ended text CONSTRAINT ended_known CHECK (ended IN ('ACKED', 'DEAD', 'EXPIRED', 'CANCELLED')),
      attempt smallint NOT NULL CONSTRAINT attempt_counts CHECK (attempt >= 0),
      last_error text,
      outcome text,
      outcome_reason text,
      created_at timestamptz NOT NULL,
      started_at timestamptz,
      finished_at timestamptz,
      PRIMARY KEY (space_id, id),
      CONSTRAINT task_or_message CHECK (task_key IS NULL OR work_key IS NULL),
      CONSTRAINT ended_has_time CHECK ((ended IS NULL) = (finished_at IS NULL)),
      CONSTRAINT outcome_of_done_task CHECK (outcome IS NULL OR (ended = 'ACKED' AND task_key IS NOT NULL))
    ) WITH (fillfactor = 80)
    """,
    """
    CREATE UNIQUE INDEX messages_task_key ON runstate.messages (scope_id, mailbox_id, task_key, space_id)
      WHERE task_key IS NOT NULL
    """,
    """
    CREATE UNIQUE INDEX messages_work_key ON runstate.messages (scope_id, mailbox_id, work_key, space_id)
      WHERE work_key IS NOT NULL
    """,
    "CREATE INDEX messages_of_mailbox ON runstate.messages (mailbox_id, seq)",
    "CREATE INDEX messages_of_scope ON runstate.messages (scope_id, seq)",
    "CREATE INDEX messages_dead ON runstate.messages (mailbox_id) WHERE ended = 'DEAD'",
    # Waiting and delayed work. lane: 0 a message, 1 a task; rank: -priority, 0 in an INBOX; deadline: the
    # earlier of the
    # message's own and its scope's; deliverable: false behind the head of an INBOX scope.
    """
    CREATE TABLE runstate.queue_ready (
      space_id text COLLATE "C" NOT NULL,
      seq bigint NOT NULL,
      mailbox_id uuid NOT NULL,
      scope_id uuid NOT NULL,
      a0 uuid NOT NULL,
      a1 uuid,
      a2 uuid,
      lane smallint NOT NULL,
      rank smallint NOT NULL,
      available_at timestamptz NOT NULL,
      deadline timestamptz,
      attempt smallint NOT NULL,
      message_id uuid NOT NULL,
      started_at timestamptz,
      deliverable boolean NOT NULL,
      PRIMARY KEY (space_id, seq)
    ) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000,
            autovacuum_vacuum_cost_delay = 0)
    """,
    """
    CREATE INDEX ready_run ON runstate.queue_ready (mailbox_id, a0, lane, rank, available_at, seq)
      WHERE deliverable
    """,
    """
    CREATE INDEX ready_a1 ON runstate.queue_ready (mailbox_id, a1, lane, rank, available_at, seq)
      WHERE deliverable AND a1 IS NOT NULL
    """,
    """
    CREATE INDEX ready_a2 ON runstate.queue_ready (mailbox_id, a2, lane, rank, available_at, seq)
      WHERE deliverable AND a2 IS NOT NULL
    """,
    """
    CREATE INDEX ready_scope ON runstate.queue_ready
      (mailbox_id, scope_id, lane, rank, available_at, seq) WHERE deliverable
    """,
    """
    CREATE INDEX ready_behind ON runstate.queue_ready (mailbox_id, scope_id, seq)
      WHERE NOT deliverable
    """,
    """
    CREATE INDEX ready_deadline ON runstate.queue_ready (deadline)
      WHERE deadline IS NOT NULL
    """,
    # Deliveries. due_at follows expires_at coarsely (never later), so that renewals stay HOT.
    """
    CREATE TABLE runstate.queue_leased (
      space_id text COLLATE "C" NOT NULL,
      seq bigint NOT NULL,
      mailbox_id uuid NOT NULL,
      scope_id uuid NOT NULL,
      a0 uuid NOT NULL,
      a1 uuid,
      a2 uuid,
      lane smallint NOT NULL,
      rank smallint NOT NULL,
      deadline timestamptz,
      attempt smallint NOT NULL,
      message_id uuid NOT NULL,
      started_at timestamptz NOT NULL,
      token text NOT NULL,
      holder text NOT NULL,
      session text NOT NULL,
      lease_s double precision NOT NULL,
      expires_at timestamptz NOT NULL,
      due_at timestamptz NOT NULL,
      PRIMARY KEY (space_id, seq),
      CONSTRAINT due_before_end CHECK (due_at <= expires_at)
    ) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000,
            autovacuum_vacuum_cost_delay = 0)
    """,
    "CREATE INDEX leased_of_run ON runstate.queue_leased (mailbox_id, a0, due_at)",
    "CREATE INDEX leased_of_scope ON runstate.queue_leased (mailbox_id, scope_id)",
    "CREATE INDEX leased_due ON runstate.queue_leased (due_at)",
    """
    CREATE INDEX leased_deadline ON runstate.queue_leased (deadline)
      WHERE deadline IS NOT NULL
    """,
    # Which lanes and ranks a run has used in a mailbox: a fetch probes these. Rows go when the run ends.
    """
    CREATE TABLE runstate.queue_lanes (
      space_id text COLLATE "C" NOT NULL,
      a0 uuid NOT NULL,
      mailbox_id uuid NOT NULL,
      lane smallint NOT NULL,
      rank smallint NOT NULL,
      PRIMARY KEY (space_id, a0, mailbox_id, lane, rank)
    )
    """,
    """
    CREATE TABLE runstate.task_subscribers (
      space_id text COLLATE "C" NOT NULL,
      task_id uuid NOT NULL,
      subscriber_id text COLLATE "C" NOT NULL,
      scope_id uuid NOT NULL,
      joined_at timestamptz NOT NULL,
      PRIMARY KEY (space_id, task_id, subscriber_id)
    )
    """,
)
DOWN = (
    "DROP TABLE runstate.task_subscribers",
    "DROP TABLE runstate.queue_lanes",
    "DROP TABLE runstate.queue_leased",
    "DROP TABLE runstate.queue_ready",
    "DROP TABLE runstate.messages",
)


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)
