"""Every SQL function is checked against the migrated schema, on the oldest PostgreSQL that is supported."""

from pathlib import Path

import pytest

from tests.support import database, machine, sources
from tests.support.sources import nothing

CHECKED_BY = [
    pytest.param(path, id=f"postgresql-{path.parent.name}")
    for path in machine.SYSTEM_POSTGRES
    if Path(f"/usr/share/postgresql/{path.parent.name}/extension/plpgsql_check.control").is_file()
]

CHECK = """
SELECT p.oid::regprocedure::text AS function, c.lineno, c.statement, c.level, c.message, c.detail, c.hint
  FROM pg_proc p
  JOIN pg_language l ON l.oid = p.prolang AND l.lanname = 'plpgsql'
 CROSS JOIN LATERAL plpgsql_check_function_tb(p.oid, other_warnings => true, extra_warnings => true,
                                              security_warnings => true, performance_warnings => false) c
 WHERE p.pronamespace = $1::text::regnamespace
 ORDER BY 1, 2
"""


COUNT = "SELECT count(*) FROM pg_proc WHERE pronamespace = $1::text::regnamespace"


@pytest.mark.processes
@pytest.mark.parametrize("pg_bin", CHECKED_BY)
def test_plpgsql_check_finds_nothing_in_any_function(pg_bin, kernel_schema):
    cluster = database.Cluster(pg_bin)
    with cluster:
        url = cluster.postgres.database_url(database.TEMPLATE)
        database.execute(url, "CREATE EXTENSION plpgsql_check")
        rows = database.fetch(url, CHECK, kernel_schema)
        assert database.fetchval(url, COUNT, kernel_schema)
    nothing(
        f"{r['function']}:{r['lineno']} {r['statement']}: {r['message']} {r['detail'] or ''}" for r in rows
    )


def test_every_function_of_the_sources_is_installed(fresh_database, kernel_schema):
    installed = {
        row["proname"]
        for row in database.fetch(
            fresh_database,
            "SELECT proname FROM pg_proc WHERE pronamespace = $1::text::regnamespace",
            kernel_schema,
        )
    }
    assert {f.name.removeprefix("kernel.") for f in sources.functions()} == installed
