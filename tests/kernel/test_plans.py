"""Hot statements use their index whatever the size of the tables: the plans inside the functions, looked at.

100,000 keys in a thousand runs, a full outbox and journal, and no statistics, as after a restore.
"""

import json
import re
import uuid

import pytest

from tests.support import database

ROWS = 100_000
RUNS = 1_000
HOT = ("once", "scopes", "outbox", "journal", "journal_heads", "idempotency", "api_keys", "api_key_spaces")
ROWS_READ_MAX = 20
FILL = f"""
INSERT INTO runstate.spaces (id, name, suspended, created_at) VALUES ('s', 's', false, now());
INSERT INTO runstate.scopes (space_id, id, name, run_name, root_id, path, depth, stored, effective, deadline,
  effective_deadline, child_limit, children, version, created_at)
SELECT 's', u, 'n', 'run-' || i, u, ARRAY[u], 0, 'ACTIVE', 'ACTIVE', d, d, 1000, 0, 1, now()
  FROM (SELECT i, ('00000000-0000-7000-8000-' || lpad(to_hex(i), 12, '0'))::uuid AS u,
               now() + make_interval(hours => i) AS d
          FROM generate_series(1, {RUNS}) AS i) AS made;
INSERT INTO runstate.once (space_id, scope_id, key, root_id, state, attempts, holder, session, token,
  expires_at, due_at, result, created_at, ended_at)
SELECT 's', u, 'k' || i, u, CASE WHEN held THEN 'HELD' ELSE 'DONE' END, 0, CASE WHEN held THEN 'h' END,
       CASE WHEN held THEN 's' END, CASE WHEN held THEN 't' || i END, CASE WHEN held THEN soon END,
       CASE WHEN held THEN soon END, CASE WHEN NOT held THEN '1' END, now(), CASE WHEN NOT held THEN now() END
  FROM (SELECT i, i % 2 = 0 AS held, now() + interval '1 hour' AS soon,
               ('00000000-0000-7000-8000-' || lpad(to_hex(1 + i % {RUNS}), 12, '0'))::uuid AS u
          FROM generate_series(1, {ROWS}) AS i) AS made;
SELECT {{kernel}}.journal_day((now() AT TIME ZONE 'UTC')::date);
INSERT INTO runstate.journal (space_id, num, day, type, created_at, aggregate_type, aggregate_id, payload)
SELECT 's', i, (now() AT TIME ZONE 'UTC')::date, 't', now(), 'once', 'k' || i, '{{}}'
  FROM generate_series(1, {ROWS}) AS i;
INSERT INTO runstate.journal_heads (space_id, num, day)
VALUES ('s', {ROWS}, (now() AT TIME ZONE 'UTC')::date);
INSERT INTO runstate.outbox (space_id, type, created_at, aggregate_type, aggregate_id, payload)
SELECT 's', 't', now(), 'once', 'k' || i, '{{}}' FROM generate_series(1, {ROWS}) AS i;
INSERT INTO runstate.idempotency (slot, space_id, key, fingerprint, status, facts, kept_at)
SELECT i % 4, 's', 'i' || i, '\\x00', 200, '{{}}', now() FROM generate_series(1, {ROWS}) AS i;
INSERT INTO runstate.api_keys (space_id, id, label, hash, permissions, created_at)
SELECT 's', gen_random_uuid(), 'l', sha256(i::text::bytea), '{{}}', now()
  FROM generate_series(1, {ROWS}) AS i;
"""
EXPLAIN = (
    "LOAD 'auto_explain'; SET auto_explain.log_min_duration = 0; SET auto_explain.log_nested_statements = on;"
    "SET auto_explain.log_analyze = on; SET auto_explain.log_format = json;"
    "SET auto_explain.log_level = notice; SET client_min_messages = notice"
)


@pytest.fixture(scope="module")
def filled(template, kernel_schema):
    with template.clone("plans") as url:
        database.execute(url, FILL.replace("{kernel}", kernel_schema))
        yield url


def run(i):
    return uuid.UUID(f"00000000-0000-7000-8000-{i:012x}")


HOLDER = ["ann", "1", 30.0, "token", "key", b"print"]
CALLS = {
    "a first acquire": ("once_acquire", ["s", run(7), "new", *HOLDER]),
    "an acquire of a held key": ("once_acquire", ["s", run(7), "k6", "ann", "1", 30.0, "token", None, None]),
    "a look at a key": ("once_view", ["s", run(7), "k6"]),
    "a renewal": ("once_renew", ["s", run(7), "k6", "t6", 30.0, None, None]),
    "a completion": ("once_complete", ["s", run(9), "k8", "t8", "1", "key-2", b"print"]),
    "a failure": ("once_fail", ["s", run(11), "k10", "t10", "e", 3, None, None]),
    "a new scope": ("scope_create", ["s", uuid.uuid4(), "n", run(5), None, 10, 32, None, None]),
    "a joined run": ("run_ensure", ["s", "run-500", uuid.uuid4(), None, 10, None, None]),
    "a new run": ("run_ensure", ["s", "another", uuid.uuid4(), None, 10, None, None]),
    "a look at a scope": ("scope_view", ["s", run(500)]),
    "a look for a key": ("key_find", [b"0" * 32]),
    "a sweep of leases": ("once_sweep", [200]),
    "a sweep of deadlines": ("scope_sweep", [100]),
    "a sweep of keys": ("idempotency_sweep", [0]),
    "a tick": ("journal_tick", [["s"], [ROWS - 3], 5000]),
}


async def plans_of(url, schema, function, args):
    """Every plan that ran inside the call, as auto_explain tells it."""
    told = []
    async with database.connected(url) as connection:
        connection.add_log_listener(lambda _, message: told.append(message.message))
        places = ", ".join(f"${i}" for i in range(1, len(args) + 1))
        await connection.execute(EXPLAIN)
        await connection.fetch(f"SELECT * FROM {schema}.{function}({places})", *args)
        await connection.execute("SET auto_explain.log_min_duration = -1")
    texts = [re.search(r"plan:\s*(\{.*\})", message, re.DOTALL) for message in told]
    return [json.loads(found[1]) for found in texts if found]


def nodes(plan):
    yield plan
    for below in plan.get("Plans", []):
        yield from nodes(below)


@pytest.mark.parametrize("what", CALLS)
async def test_a_hot_call_reads_by_its_index_and_little(filled, kernel_schema, what):
    function, args = CALLS[what]
    plans = await plans_of(filled, kernel_schema, function, args)
    assert plans
    scans = [n for plan in plans for n in nodes(plan["Plan"]) if n.get("Relation Name", "").startswith(HOT)]
    assert scans or function == "idempotency_sweep"
    for scan in scans:
        assert scan["Node Type"] in {"Index Scan", "Index Only Scan", "ModifyTable", "Tid Scan"}, scan
        assert scan["Actual Rows"] + scan.get("Rows Removed by Filter", 0) <= ROWS_READ_MAX, scan


async def test_a_step_of_the_sequencer_reads_its_batch_alone(filled, kernel_schema):
    plans = await plans_of(filled, kernel_schema, "journal_step", [100, 0])
    scans = [n for plan in plans for n in nodes(plan["Plan"]) if "Scan" in n["Node Type"]]
    outbox = [n for n in scans if n.get("Relation Name") == "outbox"]
    assert len(outbox) == 2
    for scan in outbox:
        assert scan["Node Type"].startswith("Index"), scan
        assert scan["Actual Rows"] <= 100


async def test_the_end_of_one_run_reads_what_is_held_in_it_alone(filled, kernel_schema):
    """Every second key of the table is held, and every second run holds none."""
    for number, held in ((42, 0), (43, ROWS // RUNS)):
        args = ["s", run(number), "CANCELLED", None, None]
        plans = await plans_of(filled, kernel_schema, "scope_end", args)
        scans = [n for p in plans for n in nodes(p["Plan"]) if n.get("Relation Name") in {"once", "scopes"}]
        assert {n["Relation Name"] for n in scans} == {"once", "scopes"}
        for scan in scans:
            assert "Seq" not in scan["Node Type"], scan
            assert scan["Actual Rows"] + scan.get("Rows Removed by Filter", 0) <= max(held, 2), scan
