"""The floor: outbox and journal, idempotency keys, replicas.

Revision ID: 0001
Revises:
"""

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

UP = (
    # Committed events on their way to a number. Small and hot: rows live for milliseconds.
    """
    CREATE TABLE runstate.outbox (
      space_id text COLLATE "C" NOT NULL,
      seq bigint GENERATED ALWAYS AS IDENTITY,
      type text NOT NULL,
      created_at timestamptz NOT NULL,
      scope_id uuid,
      root_id uuid,
      depth1_id uuid,
      depth2_id uuid,
      aggregate_type text NOT NULL,
      aggregate_id text COLLATE "C" NOT NULL,
      payload text NOT NULL,
      wake text[],
      PRIMARY KEY (space_id, seq)
    ) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
            autovacuum_vacuum_cost_delay = 0)
    """,
    "CREATE INDEX outbox_seq ON runstate.outbox (seq)",
    # Numbered events, a partition a day; the sequencer makes the partitions.
    """
    CREATE TABLE runstate.journal (
      space_id text COLLATE "C" NOT NULL,
      num bigint NOT NULL,
      day date NOT NULL,
      type text NOT NULL,
      created_at timestamptz NOT NULL,
      scope_id uuid,
      root_id uuid,
      depth1_id uuid,
      depth2_id uuid,
      aggregate_type text NOT NULL,
      aggregate_id text COLLATE "C" NOT NULL,
      payload text NOT NULL,
      wake text[],
      PRIMARY KEY (space_id, num, day)
    ) PARTITION BY RANGE (day)
    """,
    "CREATE INDEX journal_aggregate ON runstate.journal (aggregate_id, aggregate_type, space_id, num)",
    "CREATE INDEX journal_run ON runstate.journal (root_id, num)",
    """
    CREATE TABLE runstate.journal_heads (
      space_id text COLLATE "C" PRIMARY KEY,
      num bigint NOT NULL CONSTRAINT num_is_positive CHECK (num > 0),
      day date NOT NULL
    ) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
            autovacuum_vacuum_cost_delay = 0)
    """,
    "CREATE TABLE runstate.sequencer (id int PRIMARY KEY CONSTRAINT one_row CHECK (id = 1))",
    "INSERT INTO runstate.sequencer (id) VALUES (1)",
    # A ring of four daily slots: no partition is ever made or dropped while the service runs.
    """
    CREATE TABLE runstate.idempotency (
      slot smallint NOT NULL,
      space_id text COLLATE "C" NOT NULL,
      key text COLLATE "C" NOT NULL,
      fingerprint bytea NOT NULL,
      status smallint NOT NULL,
      facts text NOT NULL,
      kept_at timestamptz NOT NULL,
      PRIMARY KEY (slot, space_id, key)
    ) PARTITION BY LIST (slot)
    """,
    *(
        f"CREATE TABLE runstate.idempotency_{slot} PARTITION OF runstate.idempotency FOR VALUES IN ({slot})"
        for slot in range(4)
    ),
    """
    CREATE TABLE runstate.replicas (
      id uuid PRIMARY KEY,
      build text NOT NULL,
      seen_at timestamptz NOT NULL
    )
    """,
)
DOWN = (
    "DROP TABLE runstate.replicas",
    "DROP TABLE runstate.idempotency",
    "DROP TABLE runstate.sequencer",
    "DROP TABLE runstate.journal_heads",
    "DROP TABLE runstate.journal",
    "DROP TABLE runstate.outbox",
)


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)
