"""Permit pools, their grants and their lines.

Revision ID: 0009
Revises: 0008
"""

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

UP = (
    # One row under every acquire and release: its counters stand in no index.
    """
    CREATE TABLE runstate.pools (
      space_id text COLLATE "C" NOT NULL,
      id uuid NOT NULL,
      name text COLLATE "C" NOT NULL,
      units_total bigint NOT NULL CONSTRAINT total_is_positive CHECK (units_total > 0),
      units_used bigint NOT NULL CONSTRAINT used_counts CHECK (units_used >= 0),
      units_signaled bigint NOT NULL CONSTRAINT signaled_counts CHECK (units_signaled >= 0),
      next_ticket bigint NOT NULL,
      created_at timestamptz NOT NULL,
      PRIMARY KEY (space_id, id)
    ) WITH (fillfactor = 20)
    """,
    "CREATE UNIQUE INDEX pools_name ON runstate.pools (name, space_id)",
    # due_at follows expires_at coarsely (never later), so that renewals stay HOT.
    """
    CREATE TABLE runstate.grants (
      space_id text COLLATE "C" NOT NULL,
      id uuid NOT NULL,
      pool_id uuid NOT NULL,
      scope_id uuid NOT NULL,
      root_id uuid NOT NULL,
      units bigint NOT NULL CONSTRAINT units_are_positive CHECK (units > 0),
      token text NOT NULL,
      holder text NOT NULL,
      session text NOT NULL,
      lease_s double precision NOT NULL,
      expires_at timestamptz NOT NULL,
      due_at timestamptz NOT NULL,
      observation text,
      ended text CONSTRAINT ended_known CHECK (ended IN ('RELEASED', 'LAPSED')),
      ended_at timestamptz,
      created_at timestamptz NOT NULL,
      PRIMARY KEY (space_id, id),
      CONSTRAINT ended_has_time CHECK ((ended IS NULL) = (ended_at IS NULL))
    ) WITH (fillfactor = 70)
    """,
    "CREATE INDEX grants_of_pool ON runstate.grants (pool_id, due_at) WHERE ended IS NULL",
    """
    CREATE INDEX grants_observed ON runstate.grants (pool_id, ended_at) WHERE observation IS NOT NULL
    """,
    "CREATE INDEX grants_due ON runstate.grants (due_at) WHERE ended IS NULL",
    # Whoever waits for units of a pool or of an allowance; `since` is when its place in the line began.
    """
    CREATE TABLE runstate.line_waiters (
      space_id text COLLATE "C" NOT NULL,
      id uuid NOT NULL,
      kind text NOT NULL CONSTRAINT kind_known CHECK (kind IN ('permit', 'allowance')),
      resource_id uuid NOT NULL,
      ticket bigint NOT NULL,
      since timestamptz NOT NULL,
      state text NOT NULL CONSTRAINT state_known
        CHECK (state IN ('WAITING', 'SIGNALED', 'GRANTED', 'CANCELLED', 'EXPIRED')),
      units bigint NOT NULL CONSTRAINT units_are_positive CHECK (units > 0),
      scope_id uuid NOT NULL,
      root_id uuid NOT NULL,
      holder text NOT NULL,
      ttl_s double precision NOT NULL,
      seen_at timestamptz NOT NULL,
      hold_until timestamptz,
      consumption_id uuid,
      ended_at timestamptz,
      PRIMARY KEY (space_id, id),
      CONSTRAINT signaled_is_held CHECK ((state = 'SIGNALED') = (hold_until IS NOT NULL))
    ) WITH (fillfactor = 70)
    """,
    """
    CREATE UNIQUE INDEX waiters_line ON runstate.line_waiters (resource_id, ticket, space_id)
      WHERE state IN ('WAITING', 'SIGNALED')
    """,
    """
    CREATE INDEX waiters_of_run ON runstate.line_waiters (root_id, scope_id)
      WHERE state IN ('WAITING', 'SIGNALED')
    """,
    "CREATE INDEX waiters_signaled ON runstate.line_waiters (resource_id) WHERE state = 'SIGNALED'",
    "CREATE INDEX waiters_held ON runstate.line_waiters (hold_until) WHERE state = 'SIGNALED'",
)
DOWN = ("DROP TABLE runstate.line_waiters", "DROP TABLE runstate.grants", "DROP TABLE runstate.pools")


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)
