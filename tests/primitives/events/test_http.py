"""GET /events: pages, cursors and filters; what is shown of an event, and to whom."""

import base64
import json

from tests.support import database, spaces
from tests.support.builders import end, ok, refused, scope
from tests.support.events import end_of, page, read
from tests.support.queues import Claim, mailbox, submitted


def kinds(events):
    return [event["type"] for event in events]


def child(api, parent):
    return scope(api, parentId=parent)


def claimed(api, scope_id, key):
    ok(Claim(scope_id, key).acquire().send(api), 201)


def test_an_event_says_what_changed_where_and_when_and_carries_no_token(api):
    run = scope(api, name="nightly")
    after = end_of(api)
    token = ok(Claim(run, "a").acquire(holder="ann").send(api), 201)["token"]
    told = ok(page(cursor=after).send(api))
    (event,) = told["events"]
    assert set(event) == {"eventId", "type", "createdAt", "scopeId", "aggregate", "payload", "cursor"}
    assert event["type"] == "claim.acquired"
    assert event["scopeId"] == run
    assert event["aggregate"] == {"type": "claim", "id": "a"}
    assert event["payload"]["holder"] == "ann"
    assert event["cursor"] == told["nextCursor"]
    assert token not in json.dumps(told)


def test_a_reader_finds_what_it_wrote_a_moment_before(api):
    after = end_of(api)
    for n in range(30):
        run = scope(api)
        told = ok(page(cursor=after).send(api))
        assert [e["aggregate"]["id"] for e in told["events"]] == [run], n
        after = told["nextCursor"]


def test_pages_of_any_size_are_the_same_journal_oldest_first(api):
    run = scope(api)
    for n in range(7):
        claimed(api, run, str(n))
    whole = read(api)
    assert kinds(whole) == ["key.created", "scope.created"] + ["claim.acquired"] * 7
    assert len({event["eventId"] for event in whole}) == len(whole)
    for size in (1, 2, 3, 500):
        assert read(api, limit=size) == whole
    for n, event in enumerate(whole):
        assert read(api, cursor=event["cursor"], limit=3) == whole[n + 1 :]


def test_a_page_without_events_has_a_cursor_from_which_everything_later_is_read(api, space, database_url):
    told = ok(page(types="nothing.known").send(api))
    assert told["events"] == []
    run = scope(api)
    assert [e["aggregate"]["id"] for e in read(api, cursor=told["nextCursor"])] == [run]
    for table in ("journal", "journal_heads"):
        database.execute(database_url, f"DELETE FROM runstate.{table} WHERE space_id = $1", space.id)
    empty = ok(page().send(api))
    assert empty["events"] == []
    later = scope(api)
    assert [e["aggregate"]["id"] for e in read(api, cursor=empty["nextCursor"])] == [later]


def test_filters_choose_and_the_cursor_moves_past_what_they_hide(api):
    run = scope(api)
    claimed(api, run, "a")
    claimed(api, run, "b:c")
    submitted(api, mailbox(api, run))
    ok(end(run).send(api))
    everything = read(api)
    for query, wanted in (
        ({"types": "scope.created, scope.cancelled"}, ["scope.created", "scope.cancelled"]),
        ({"types": "nothing.known"}, []),
        ({"aggregate": "claim:b:c"}, ["claim.acquired", "claim.lapsed"]),
        ({"aggregate": f"scope:{run}", "types": "scope.cancelled"}, ["scope.cancelled"]),
        ({"aggregate": "claim:none"}, []),
    ):
        told = ok(page(**query).send(api))
        assert kinds(told["events"]) == wanted, query
        assert told["nextCursor"] == everything[-1]["cursor"], query
        assert kinds(read(api, limit=1, **query)) == wanted, query


def test_a_scope_covers_its_subtree_however_deep(api):
    chain = [scope(api)]
    for _ in range(5):
        chain.append(child(api, chain[-1]))
    beside = child(api, chain[0])
    for n, each in enumerate([*chain, beside]):
        claimed(api, each, f"k{n}")
    for n, each in enumerate(chain):
        keys = [e["aggregate"]["id"] for e in read(api, scopeId=each, types="claim.acquired")]
        assert keys == [f"k{i}" for i in range(n, 6)] + (["k6"] if n == 0 else [])
        assert [e["aggregate"]["id"] for e in read(api, scopeId=each, aggregate=f"claim:k{n}")] == [f"k{n}"]
    assert read(api, scopeId=chain[3], aggregate="claim:k0") == []


def test_what_cannot_be_read_is_refused_by_name(api):
    for query, name in (
        ({"limit": 0}, "limit"),
        ({"limit": 501}, "limit"),
        ({"aggregate": "claim"}, "aggregate"),
        ({"aggregate": "thing:1"}, "aggregate"),
        ({"aggregate": "claim:"}, "aggregate"),
        ({"types": ""}, "types"),
        ({"cursor": "x"}, "cursor"),
        ({"cursor": "W10"}, "cursor"),
        ({"cursor": base64.urlsafe_b64encode(b"[0,1,99999999999]").decode().rstrip("=")}, "cursor"),
        ({"cursor": base64.urlsafe_b64encode(b"[0,-1,7]").decode().rstrip("=")}, "cursor"),
        ({"since": "1"}, "since"),
    ):
        assert name in refused(page(**query).send(api), "VALIDATION_FAILED", 400), query
    refused(page(scopeId="00000000-0000-7000-8000-000000000000").send(api), "NOT_FOUND", 404)


def test_a_cursor_past_the_end_of_the_journal_or_of_another_epoch_is_refused_clearly(api):
    scope(api)
    epoch, num, day = json.loads(base64.urlsafe_b64decode(end_of(api) + "=="))
    for place, said in (([epoch, num + 1, day], "ends at"), ([epoch + 1, num, day], "epoch")):
        cursor = base64.urlsafe_b64encode(json.dumps(place).encode()).decode().rstrip("=")
        assert said in refused(page(cursor=cursor).send(api), "CURSOR_EXPIRED", 410)


def test_only_the_space_s_own_events_are_shown_and_only_to_keys_that_may_observe(api, server, database_url):
    run = scope(api)
    other = spaces.create(database_url)
    with other.client(server.url) as stranger:
        assert kinds(read(stranger)) == ["key.created"]
        refused(page(scopeId=run).send(stranger), "NOT_FOUND", 404)
        assert ok(page(aggregate=f"scope:{run}").send(stranger))["events"] == []
    blind = spaces.limited(database_url, spaces.create(database_url), "runtime")
    with blind.client(server.url) as client:
        assert "observe" in refused(page().send(client), "FORBIDDEN", 403)
