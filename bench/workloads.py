"""What `make bench` measures: each workload says its HTTP requests, the pgbench script that calls the same
kernel functions, and how to see afterwards that nothing was lost.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.connections import Request
from runstate_server.kernel import install
from tests.support import database
from tests.support.backlog import Backlog
from tests.support.site import Site

BATCH = 100
LEASE_S = 3600  # nothing lapses while we measure
ADMITS_PER_S_MAX = 6_000  # so many tasks wait for each second of a measurement

# What the scripts have in common: a key that is fresh for each call, and ids as the server makes them: those
# that are near in time are near in the index.
IN_SCRIPTS = {
    "key": "'p' || :run || '-' || :client_id || '-' || :n",
    "new_id": "(lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0')"
    " || substr(md5(random()::text), 13))::uuid",
    "print": "'\\x00112233445566778899aabbccddeeff'::bytea",
    "schema": install.schema_name(),
    "lease_s": LEASE_S,
}
ONCE = """\\set n :n + 1
SELECT * FROM {schema}.once_acquire('{space}', '{run}'::uuid, {key}, 'bench', 'bench', {lease_s},
  '0123456789abcdef0123456789abcdef', {key}, {print});
"""
SUBMIT = """\\set n :n + 1
SELECT * FROM {schema}.task_submit('{space}', ARRAY(SELECT {new_id} FROM generate_series(1, {size})),
  array_fill('{run}'::uuid, ARRAY[{size}]), array_fill('{mailbox}'::uuid, ARRAY[{size}]),
  ARRAY(SELECT {key} || '-' || i FROM generate_series(1, {size}) i),
  array_fill('{{"n":1}}'::text, ARRAY[{size}]), array_fill(NULL::timestamptz, ARRAY[{size}]),
  array_fill(0, ARRAY[{size}]), array_fill(0::float8, ARRAY[{size}]),
  array_fill(NULL::text, ARRAY[{size}]), array_fill(NULL::text, ARRAY[{size}]),
  array_fill(NULL::text, ARRAY[{size}]), {size} = 1, {key}, {print});
"""
ADMIT = """\\set n :n + 1
SELECT facts ->> 'messageId' AS message, facts ->> 'token' AS token FROM {schema}.message_take('{space}',
  '{mailbox}'::uuid, '{run}'::uuid, false, 'task', 'bench', 'bench', {lease_s}, ARRAY[md5({key})],
  ARRAY(SELECT md5({key} || i) FROM generate_series(1, 4) i), 0, {key}, {print}) \\gset
SELECT * FROM {schema}.message_complete('{space}', :message::uuid, :token, '{{"n":1}}', {new_id}, NULL, NULL,
  NULL, {key} || '-done', {print});
"""
SPEND = """\\set n :n + 1
SELECT facts ->> 'reservationId' AS reservation FROM {schema}.budget_reserve('{space}', '{budget}'::uuid,
  {new_id}, '{run}'::uuid, 'bench', 40, NULL, {key}, {print}) \\gset
SELECT * FROM {schema}.budget_settle('{space}', '{budget}'::uuid, :reservation::uuid, 40, {key}, false,
  {key} || '-done', {print});
"""
LEND = """\\set n :n + 1
SELECT facts ->> 'grantId' AS lent, facts ->> 'token' AS token FROM {schema}.permit_acquire('{space}',
  '{pool}'::uuid, '{run}'::uuid, {new_id}, 1, 'bench', 'bench', {lease_s}, NULL, md5({key}), {key},
  {print}) \\gset
SELECT * FROM {schema}.grant_release('{space}', :lent::uuid, :token, NULL, {key} || '-done', {print});
"""
TAKE = """\\set n :n + 1
SELECT * FROM {schema}.allowance_consume('{space}', '{allowance}'::uuid, '{run}'::uuid, 1, 'bench', {key},
  {print});
"""
WAITING = "SELECT count(*) FROM runstate.queue_ready WHERE mailbox_id = $1::text::uuid"
IN_JOURNAL = "SELECT count(*) FROM runstate.journal WHERE root_id = $1::text::uuid AND type = $2"


@dataclass(frozen=True)
class Workload:
    """One unit of work by HTTP and by pgbench."""

    name: str  # for --only
    over_http: str
    by_pgbench: str
    requests: list[Request]
    script: str  # pgbench sets :run, :client_id and :n, which is 0 at first
    made_by_a_unit: int
    prepare: Callable[[int], None]  # before a measurement of so many seconds
    recorded: Callable[[], dict[str, int]]  # how much was made, by each place that knows


class Place:
    """A run of its own on the site, so that what is recorded there is one workload's alone."""

    def __init__(self, site: Site, name: str) -> None:
        self.site = site
        self.space = site.space.id
        self.run = site.run_id(f"bench-{name}")

    def mailbox(self, name: str) -> str:
        return str(self.site.answer("PUT", f"/mailboxes/by-name/bench-{name}")["id"])

    def post(self, path: str, body: str, wanted: str) -> Request:
        """`body`: compact JSON, as the SDK writes it."""
        head = (
            f"POST /v1/spaces/{self.space}{path} HTTP/1.1\r\nHost: bench\r\n"
            f"Authorization: Bearer {self.site.space.key}\r\nContent-Type: application/json\r\n"
            f"Idempotency-Key: %(key)s\r\nContent-Length: %(length)s\r\n\r\n"
        )
        return Request(head, body, wanted)

    def script(self, text: str, **more: Any) -> str:
        return text.format_map(IN_SCRIPTS | {"space": self.space, "run": self.run} | more)

    def count(self, sql: str, *args: str) -> int:
        return int(database.fetchval(self.site.postgres.url, sql, *args))

    def journal(self, event: str) -> int:
        """How many events of that type there are; all are numbered first."""
        self.site.until_numbered()
        return self.count(IN_JOURNAL, self.run, event)


NOTHING = Request("GET /healthz HTTP/1.1\r\nHost: bench\r\n\r\n", "", '"ok"')


def once(site: Site) -> Workload:
    place = Place(site, "once")
    asked = f'"scopeId":"{place.run}","key":"%(key)s","holder":"bench","holderSession":"bench"'
    keys = "SELECT count(*) FROM runstate.once WHERE scope_id = $1::text::uuid"
    return Workload(
        "once",
        "once/acquire over HTTP",
        "once_acquire by pgbench",
        [place.post("/once/acquire", f'{{{asked},"leaseSeconds":{LEASE_S}}}', '"ACQUIRED"')],
        place.script(ONCE),
        1,
        _nothing_to_prepare,
        lambda: {"journal": place.journal("once.acquired"), "table": place.count(keys, place.run)},
    )


def submit(site: Site) -> Workload:
    place = Place(site, "submit")
    mailbox = place.mailbox("submit")
    body = _task(place, mailbox, "%(key)s")
    return Workload(
        "submit",
        "POST tasks over HTTP",
        "task_submit by pgbench",
        [place.post("/tasks", body, '"replay":false,"state":"QUEUED"')],
        place.script(SUBMIT, mailbox=mailbox, size=1),
        1,
        _nothing_to_prepare,
        lambda: _submitted(place, mailbox),
    )


def batch(site: Site) -> Workload:
    place = Place(site, "batch")
    mailbox = place.mailbox("batch")
    tasks = ",".join(_task(place, mailbox, f"%(key)s-{i}") for i in range(BATCH))
    return Workload(
        "batch",
        f"tasks/batch of {BATCH} over HTTP",
        f"task_submit of {BATCH} by pgbench",
        [place.post("/tasks/batch", f'{{"tasks":[{tasks}]}}', '"replay":false,"state":"QUEUED"')],
        place.script(SUBMIT, mailbox=mailbox, size=BATCH),
        BATCH,
        _nothing_to_prepare,
        lambda: _submitted(place, mailbox),
    )


def admit(site: Site) -> Workload:
    place = Place(site, "admit")
    mailbox = place.mailbox("admit")
    asked = f'"scopeId":"{place.run}","mailboxId":"{mailbox}","holder":"bench","holderSession":"bench"'
    done = (
        "SELECT count(*) FROM runstate.messages"
        " WHERE mailbox_id = $1::text::uuid AND ended = 'ACKED' AND outcome = '{\"n\":1}'"
    )
    return Workload(
        "admit",
        "admit + complete over HTTP",
        "take + complete by pgbench",
        [
            place.post("/tasks/admit", f'{{{asked},"leaseSeconds":{LEASE_S}}}', '"messageId"'),
            place.post(
                "/messages/%(messageId)s/complete",
                '{"token":"%(token)s","result":{"payload":{"n":1}}}',
                '"ACKED"',
            ),
        ],
        place.script(ADMIT, mailbox=mailbox),
        1,
        lambda seconds: _fill(place, mailbox, seconds * ADMITS_PER_S_MAX),
        lambda: {"journal": place.journal("task.succeeded"), "table": place.count(done, mailbox)},
    )


def spend(site: Site) -> Workload:
    """All connections on one budget, whose row they lock in turn."""
    place = Place(site, "spend")
    settings = {"currency": "USD", "scale": 2, "limitMinor": str(10**18)}
    budget = str(site.send("PUT", "/budgets/by-name/bench-spend", settings).raise_for_status().json()["id"])
    done = (
        "SELECT count(*) FROM runstate.budget_entries"
        " WHERE budget_id = $1::text::uuid AND kind = 'settle' AND settled_change = 40"
    )
    return Workload(
        "spend",
        "reserve + settle over HTTP",
        "reserve + settle by pgbench",
        [
            place.post(
                f"/budgets/{budget}/reserve",
                f'{{"scopeId":"{place.run}","holder":"bench","amountMinor":"40"}}',
                '"ACTIVE"',
            ),
            place.post(
                f"/budgets/{budget}/settle",
                '{"reservationId":"%(reservationId)s","amountMinor":"40","workKey":"%(key)s"}',
                '"SETTLED"',
            ),
        ],
        place.script(SPEND, budget=budget),
        1,
        _nothing_to_prepare,
        lambda: {"journal": place.journal("budget.settled"), "table": place.count(done, budget)},
    )


def lend(site: Site) -> Workload:
    """All connections on one pool, which has enough for all of them."""
    place = Place(site, "lend")
    settings = {"units": 10**9}
    pool = str(site.send("PUT", "/permits/by-name/bench-lend", settings).raise_for_status().json()["id"])
    asked = f'"scopeId":"{place.run}","units":1,"holder":"bench","holderSession":"bench"'
    done = "SELECT count(*) FROM runstate.grants WHERE pool_id = $1::text::uuid AND ended = 'RELEASED'"
    return Workload(
        "lend",
        "acquire + release over HTTP",
        "acquire + release by pgbench",
        [
            place.post(f"/permits/{pool}/acquire", f'{{{asked},"leaseSeconds":{LEASE_S}}}', '"grantId"'),
            place.post("/grants/%(grantId)s/release", '{"token":"%(token)s"}', '"released"'),
        ],
        place.script(LEND, pool=pool),
        1,
        _nothing_to_prepare,
        lambda: {"journal": place.journal("permit.released"), "table": place.count(done, pool)},
    )


def take(site: Site) -> Workload:
    """All connections on one allowance, whose row they lock in turn."""
    place = Place(site, "take")
    sizes = {"unitsLimit": 10**9, "windowSeconds": 86_400}
    made = site.send("PUT", "/allowances/by-name/bench-take", sizes).raise_for_status().json()
    allowance = str(made["id"])
    done = "SELECT consumed FROM runstate.allowances WHERE id = $1::text::uuid"
    return Workload(
        "take",
        "consume over HTTP",
        "consume by pgbench",
        [
            place.post(
                f"/allowances/{allowance}/consume",
                f'{{"scopeId":"{place.run}","units":1,"holder":"bench"}}',
                '"consumptionId"',
            )
        ],
        place.script(TAKE, allowance=allowance),
        1,
        _nothing_to_prepare,
        lambda: {"journal": place.journal("allowance.consumed"), "table": place.count(done, allowance)},
    )


def render(site: Site) -> Workload:
    """Tasks that need a unit of a pool, one of an allowance and money, all of the same."""
    place = Place(site, "render")
    for path, sizes in (
        ("permits", {"units": 10**9}),
        ("allowances", {"unitsLimit": 10**9, "windowSeconds": 86_400}),
        ("budgets", {"currency": "USD", "scale": 2, "limitMinor": str(10**18)}),
    ):
        site.send("PUT", f"/{path}/by-name/bench-render", sizes).raise_for_status()
    units = [{"name": "bench-render", "units": 1}]
    needs = {
        "pools": units,
        "quotas": units,
        "budgets": [{"name": "bench-render", "reserveMinor": "1"}],
    }
    mailbox = place.mailbox("render")
    asked = f'"scopeId":"{place.run}","mailboxId":"{mailbox}","holder":"bench","holderSession":"bench"'
    done = (
        "SELECT count(*) FROM runstate.messages"
        " WHERE mailbox_id = $1::text::uuid AND ended = 'ACKED' AND outcome = '{\"n\":1}'"
    )
    return Workload(
        "render",
        "admit with needs + complete over HTTP",
        "take with needs + complete by pgbench",
        [
            place.post("/tasks/admit", f'{{{asked},"leaseSeconds":{LEASE_S}}}', '"messageId"'),
            place.post(
                "/messages/%(messageId)s/complete",
                '{"token":"%(token)s","result":{"payload":{"n":1}}}',
                '"ACKED"',
            ),
        ],
        place.script(ADMIT, mailbox=mailbox),
        1,
        lambda seconds: _fill(place, mailbox, seconds * ADMITS_PER_S_MAX, needs),
        lambda: {"journal": place.journal("task.succeeded"), "table": place.count(done, mailbox)},
    )


def _nothing_to_prepare(_seconds: int) -> None:
    return


def _task(place: Place, mailbox: str, key: str) -> str:
    return f'{{"scopeId":"{place.run}","mailboxId":"{mailbox}","taskKey":"{key}","input":{{"n":1}}}}'


def _submitted(place: Place, mailbox: str) -> dict[str, int]:
    return {"journal": place.journal("task.submitted"), "table": place.count(WAITING, mailbox)}


def _fill(place: Place, mailbox: str, count: int, needs: Any = None) -> None:
    """Let at least so many tasks wait."""

    async def fill() -> None:
        async with database.connected(place.site.postgres.url) as connection:
            await connection.execute("SET statement_timeout = 0")
            missing = count - await connection.fetchval(WAITING, mailbox)
            if missing > 0:
                backlog = Backlog(connection, install.schema_name(), place.space, mailbox)
                await backlog.fill(place.run, missing, tasks=True, needs=needs)

    asyncio.run(fill())


MAKERS = {
    "once": once,
    "submit": submit,
    "batch": batch,
    "admit": admit,
    "lend": lend,
    "take": take,
    "spend": spend,
    "render": render,
}
