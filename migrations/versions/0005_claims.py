"""Claims, and the epoch that fencing numbers carry.

Revision ID: 0005
Revises: 0004
"""

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

UP = (
    # The high part of every generation: raised when an older copy of the database may have been put in its
    # place, so that no number is ever handed out twice for different things. system_id and timeline: where
    # the database was last seen.
    """
    CREATE TABLE runstate.epoch (
      id int PRIMARY KEY CONSTRAINT one_row CHECK (id = 1),
      epoch bigint NOT NULL CONSTRAINT epoch_fits CHECK (epoch BETWEEN 0 AND 4294967295),
      system_id bigint,
      timeline text
    )
    """,
    "INSERT INTO runstate.epoch (id, epoch) VALUES (1, 0)",
    """
    CREATE TABLE runstate.claims (
      space_id text COLLATE "C" NOT NULL,
      scope_id uuid NOT NULL,
      key text COLLATE "C" NOT NULL,
      root_id uuid NOT NULL,
      held boolean NOT NULL,
      generation bigint NOT NULL CONSTRAINT generation_counts CHECK (generation > 0),
      token text NOT NULL,
      holder text NOT NULL,
      session text NOT NULL,
      lease_s double precision NOT NULL,
      expires_at timestamptz,
      due_at timestamptz,
      observation text,
      created_at timestamptz NOT NULL,
      PRIMARY KEY (space_id, scope_id, key),
      CONSTRAINT held_has_lease CHECK (held = (expires_at IS NOT NULL) AND held = (due_at IS NOT NULL))
    ) WITH (fillfactor = 80)
    """,
    # The last token and holder stay with a key that is free: a late caller is told what became of its lease.
    "CREATE UNIQUE INDEX claims_token ON runstate.claims (token, space_id)",
    "CREATE INDEX claims_due ON runstate.claims (due_at) WHERE held",
    # As once_held.
    "CREATE INDEX claims_held ON runstate.claims (root_id, scope_id, key) WHERE held",
)
DOWN = (
    "DROP TABLE runstate.claims",
    "DROP TABLE runstate.epoch",
)


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)
