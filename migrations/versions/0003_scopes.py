"""Scopes and runs.

Revision ID: 0003
Revises: 0002
"""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

UP = (
    """
    CREATE TABLE runstate.scopes (
      space_id text COLLATE "C" NOT NULL,
      id uuid NOT NULL,
      name text COLLATE "C",
      run_name text COLLATE "C",
      parent_id uuid,
      root_id uuid NOT NULL,
      path uuid[] NOT NULL,
      depth smallint NOT NULL,
      stored text NOT NULL
        CONSTRAINT stored_known CHECK (stored IN ('ACTIVE', 'CANCELLED', 'COMPLETED', 'EXPIRED')),
      effective text NOT NULL
        CONSTRAINT effective_known CHECK (effective IN ('ACTIVE', 'CANCELLED', 'COMPLETED', 'EXPIRED')),
      deadline timestamptz,
      effective_deadline timestamptz,
      child_limit int NOT NULL,
      children int NOT NULL,
      version int NOT NULL,
      created_at timestamptz NOT NULL,
      ended_at timestamptz,
      PRIMARY KEY (space_id, id),
      CONSTRAINT path_leads_here CHECK (path[1] = root_id AND path[cardinality(path)] = id
                                        AND cardinality(path) = depth + 1),
      CONSTRAINT ended_has_time CHECK ((stored = 'ACTIVE') = (ended_at IS NULL)),
      CONSTRAINT own_end_is_effective CHECK (stored = 'ACTIVE' OR effective = stored),
      CONSTRAINT children_bounded CHECK (children BETWEEN 0 AND child_limit),
      CONSTRAINT runs_are_roots CHECK (run_name IS NULL OR depth = 0)
    ) WITH (fillfactor = 80)
    """,
    # Indexes beside the primary key do not begin with space_id, for ids are unique without it: while a table
    # is small, any index that begins with it seems as good as the key, and a plan made then would read the
    # whole space.
    "CREATE INDEX scopes_root ON runstate.scopes (root_id)",
    """
    CREATE UNIQUE INDEX scopes_run_name ON runstate.scopes (space_id, run_name)
      WHERE run_name IS NOT NULL AND stored = 'ACTIVE'
    """,
    """
    CREATE INDEX scopes_roots_newest ON runstate.scopes (space_id, created_at DESC, id DESC) WHERE depth = 0
    """,
    "CREATE INDEX scopes_children_newest ON runstate.scopes (parent_id, created_at DESC, id DESC)",
    """
    CREATE INDEX scopes_due ON runstate.scopes (deadline) WHERE effective = 'ACTIVE' AND deadline IS NOT NULL
    """,
    """
    CREATE TABLE runstate.scope_tidies (
      space_id text COLLATE "C" NOT NULL,
      scope_id uuid NOT NULL,
      reason text NOT NULL,
      PRIMARY KEY (space_id, scope_id)
    )
    """,
)
DOWN = (
    "DROP TABLE runstate.scope_tidies",
    "DROP TABLE runstate.scopes",
)


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)
