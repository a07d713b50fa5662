"""What a kernel function reads: the entries from each index and table, counted in its own transaction."""

from typing import Any

READ = """
SELECT c.relname AS name, i.indexrelid IS NULL AS is_table, pg_stat_get_xact_numscans(c.oid) AS scans,
       pg_stat_get_xact_tuples_returned(c.oid) AS entries
  FROM pg_class c LEFT JOIN pg_index i ON i.indexrelid = c.oid
 WHERE c.relnamespace = 'runstate'::regnamespace AND pg_stat_get_xact_numscans(c.oid) > 0
"""
# Tables that may be read whole: they are small, or emptied all the time.
SMALL = {"sequencer", "outbox", "test_clock"}


async def read_by(connection: Any, schema: str, function: str, args: list[Any]) -> list[Any]:
    """What the call reads, by table and index; rolled back. Without what calls that were rolled back before
    have left behind: their dead entries would be counted too, as many as there happened to be."""
    await connection.execute("VACUUM (INDEX_CLEANUP ON)")
    transaction = connection.transaction()
    await transaction.start()
    places = ", ".join(f"${n}" for n in range(1, len(args) + 1))
    await connection.fetch(f"SELECT * FROM {schema}.{function}({places})", *args)
    rows: list[Any] = await connection.fetch(READ)
    await transaction.rollback()
    return rows
