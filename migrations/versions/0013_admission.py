"""Admission: what tasks need, and the places of those that wait for it.

Revision ID: 0013
Revises: 0012
"""

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

UP = (
    """
    CREATE TABLE runstate.lanes (
      space_id text COLLATE "C" NOT NULL,
      lane int NOT NULL CONSTRAINT lane_has_needs CHECK (lane >= 2),
      kinds int[] NOT NULL,
      resources uuid[] NOT NULL,
      PRIMARY KEY (space_id, lane),
      CONSTRAINT needs_aligned CHECK (cardinality(kinds) = cardinality(resources))
    )
    """,
    "CREATE UNIQUE INDEX lanes_resources ON runstate.lanes (resources, kinds, space_id)",
    # One row for each resource that the head of a lane lacks; it counts until seen_until.
    """
    CREATE TABLE runstate.lane_waits (
      space_id text COLLATE "C" NOT NULL,
      resource_id uuid NOT NULL,
      mailbox_id uuid NOT NULL,
      root_id uuid NOT NULL,
      lane int NOT NULL,
      kind int NOT NULL,
      units bigint NOT NULL,
      seq bigint NOT NULL,
      scope_id uuid NOT NULL,
      holder text NOT NULL,
      since timestamptz NOT NULL,
      ready_at timestamptz NOT NULL,
      blocked_at timestamptz NOT NULL,
      holds boolean NOT NULL,
      wake text NOT NULL,
      seen_until timestamptz NOT NULL,
      PRIMARY KEY (space_id, resource_id, mailbox_id, root_id, lane)
    ) WITH (fillfactor = 50)
    """,
    "CREATE INDEX lane_waits_line ON runstate.lane_waits (resource_id)",
    "CREATE INDEX lane_waits_lane ON runstate.lane_waits (mailbox_id, root_id, lane)",
    "CREATE INDEX lane_waits_over ON runstate.lane_waits (seen_until)",
    """
    ALTER TABLE runstate.mailboxes ADD COLUMN requirements text, ADD COLUMN lane int, ADD COLUMN need bigint[]
    """,
    """
    ALTER TABLE runstate.messages ADD COLUMN requirements text, ADD COLUMN lane int NOT NULL DEFAULT 0,
      ADD COLUMN need bigint[]
    """,
    "ALTER TABLE runstate.queue_ready ADD COLUMN need bigint[], ALTER COLUMN lane TYPE int",
    "ALTER TABLE runstate.queue_leased ALTER COLUMN lane TYPE int",
    "ALTER TABLE runstate.queue_lanes ALTER COLUMN lane TYPE int",
    "ALTER TABLE runstate.grants ADD COLUMN message_id uuid",
    """
    CREATE INDEX grants_of_message ON runstate.grants (message_id)
      WHERE message_id IS NOT NULL AND ended IS NULL
    """,
)
DOWN = (
    "ALTER TABLE runstate.grants DROP COLUMN message_id",
    "ALTER TABLE runstate.queue_lanes ALTER COLUMN lane TYPE smallint",
    "ALTER TABLE runstate.queue_leased ALTER COLUMN lane TYPE smallint",
    "ALTER TABLE runstate.queue_ready DROP COLUMN need, ALTER COLUMN lane TYPE smallint",
    "ALTER TABLE runstate.messages DROP COLUMN requirements, DROP COLUMN lane, DROP COLUMN need",
    "ALTER TABLE runstate.mailboxes DROP COLUMN requirements, DROP COLUMN lane, DROP COLUMN need",
    "DROP TABLE runstate.lane_waits",
    "DROP TABLE runstate.lanes",
)


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)
