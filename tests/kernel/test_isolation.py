"""A look after a lock must be a new snapshot: mutating functions refuse all but READ COMMITTED."""

import asyncpg
import pytest

from tests.support import database

ENTERING = """
SELECT p.proname AS name, p.pronargs AS arity FROM pg_proc p
 WHERE p.pronamespace = $1::text::regnamespace AND p.prosrc LIKE '%.kernel_enter()%' ORDER BY 1
"""
VERBS = {
    "once_acquire",
    "once_renew",
    "once_complete",
    "once_fail",
    "once_sweep",
    "scope_create",
    "run_ensure",
    "scope_end",
    "scope_expire",
    "scope_sweep",
    "scope_tidy_sweep",
}


@pytest.mark.parametrize("isolation", ["repeatable_read", "serializable"])
async def test_kernel_functions_refuse_any_other_isolation(database_url, kernel_schema, isolation):
    found = {row["name"]: row["arity"] for row in database.fetch(database_url, ENTERING, kernel_schema)}
    assert found.keys() >= VERBS
    async with database.connected(database_url) as connection:
        for name, arity in found.items():
            nulls = ", ".join(["NULL"] * arity)
            with pytest.raises(asyncpg.RaiseError, match="READ COMMITTED"):
                async with connection.transaction(isolation=isolation):
                    await connection.execute(f"SELECT * FROM {kernel_schema}.{name}({nulls})")


async def test_the_role_s_default_is_read_committed_and_its_waits_are_bounded(fresh_database):
    wanted = {
        "default_transaction_isolation": "read committed",
        "lock_timeout": "500ms",
        "statement_timeout": "10s",
        "idle_in_transaction_session_timeout": "10s",
        "plan_cache_mode": "force_generic_plan",
        "enable_seqscan": "off",
        "enable_bitmapscan": "off",
        "enable_sort": "off",
        "jit": "off",
    }
    assert {name: database.fetchval(fresh_database, f"SHOW {name}") for name in wanted} == wanted
