"""Alembic's entry: runs the revisions on the connection that the migrator hands in.

One runner at a time is the migrator's doing (an advisory lock); lock and statement time-outs are set here, so
that a migration that meets a busy table fails and can be run again instead of stopping the whole service
behind it.
"""

from alembic import context
from sqlalchemy import text

connection = context.config.attributes["connection"]
context.configure(connection=connection, version_table_schema="runstate", transaction_per_migration=True)
with context.begin_transaction():
    connection.execute(text("SET lock_timeout = '5s'"))
    connection.execute(text("SET statement_timeout = '10min'"))
    context.run_migrations()
