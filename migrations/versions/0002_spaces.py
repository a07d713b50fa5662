"""Spaces and API keys.

Revision ID: 0002
Revises: 0001
"""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

UP = (
    """
    CREATE TABLE runstate.spaces (
      id text COLLATE "C" PRIMARY KEY,
      name text NOT NULL,
      suspended boolean NOT NULL,
      limits text,
      created_at timestamptz NOT NULL
    )
    """,
    """
    CREATE TABLE runstate.api_keys (
      space_id text COLLATE "C" NOT NULL,
      id uuid NOT NULL,
      label text NOT NULL,
      hash bytea NOT NULL CONSTRAINT hash_is_sha256 CHECK (length(hash) = 32),
      permissions text[] NOT NULL
        CONSTRAINT permissions_known CHECK (permissions <@ '{runtime,observe,resource_config,space_admin}'),
      created_at timestamptz NOT NULL,
      expires_at timestamptz,
      last_used_at timestamptz,
      revoked_at timestamptz,
      PRIMARY KEY (space_id, id)
    )
    """,
    "CREATE UNIQUE INDEX api_keys_hash ON runstate.api_keys (hash)",
    """
    CREATE TABLE runstate.api_key_spaces (
      space_id text COLLATE "C" NOT NULL,
      key_id uuid NOT NULL,
      PRIMARY KEY (space_id, key_id)
    )
    """,
    "CREATE INDEX api_key_spaces_key ON runstate.api_key_spaces (key_id)",
)
DOWN = (
    "DROP TABLE runstate.api_key_spaces",
    "DROP TABLE runstate.api_keys",
    "DROP TABLE runstate.spaces",
)


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)
