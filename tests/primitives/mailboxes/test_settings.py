"""Mailboxes: found by name, their settings declared by whoever works on them; one per name."""

import uuid

import pytest

from tests.support import database
from tests.support.builders import Call, ok, refused, scope
from tests.support.journal import events
from tests.support.queues import mailbox, sent


def ensure(name="research", **settings):
    return Call("PUT", f"/mailboxes/by-name/{name}", settings)


def create(name="research", **settings):
    return Call("POST", "/mailboxes", {"name": name} | settings)


def test_a_new_mailbox_has_the_defaults_unless_told_otherwise(api):
    made = ok(create().send(api), 201)
    assert made == {
        "id": made["id"],
        "name": "research",
        "mode": "WORK",
        "backlogLimit": None,
        "maxAttempts": 5,
        "requirements": None,
        "createdAt": made["createdAt"],
    }
    other = ok(create("mail", mode="INBOX", backlogLimit=7, maxAttempts=100).send(api), 201)
    assert (other["mode"], other["backlogLimit"], other["maxAttempts"]) == ("INBOX", 7, 100)


def test_a_name_that_exists_is_a_conflict(api):
    ok(create().send(api), 201)
    assert '"research"' in refused(create(mode="INBOX").send(api), "CONFLICT")
    ok(ensure("by name").send(api))
    refused(create("by name").send(api), "CONFLICT")


@pytest.mark.parametrize(("name", "other"), [("a", "A"), ("é", "e\u0301"), ("a", "a "), ("ß", "ss")])
def test_names_are_compared_byte_for_byte(api, name, other):
    assert ok(create(name).send(api), 201)["id"] != ok(create(other).send(api), 201)["id"]


@pytest.mark.parametrize("name", ["a/b?c#d", "%2F", " ", "😀" * 256, "by-name", "..", "a\nb"])
def test_a_name_in_the_path_may_hold_any_character(api, name):
    from urllib.parse import quote

    path = quote(name, safe="").replace(".", "%2E")
    found = ok(ensure(path).send(api))
    assert found["name"] == name
    assert ok(ensure(path).send(api)) == found
    refused(create(name).send(api), "CONFLICT")


def test_by_name_finds_what_is_there_and_makes_what_is_not(api):
    made = ok(ensure().send(api))
    assert (made["mode"], made["backlogLimit"], made["maxAttempts"]) == ("WORK", None, 5)
    assert ok(ensure().send(api)) == made
    assert ok(api.get("/mailboxes"))["mailboxes"] == [made]


def test_the_settings_that_are_given_win_and_the_others_stay(api):
    made = ok(ensure(maxAttempts=3, backlogLimit=10).send(api))
    changed = ok(ensure(maxAttempts=7).send(api))
    assert changed == made | {"maxAttempts": 7}
    assert ok(ensure(backlogLimit=2).send(api)) == changed | {"backlogLimit": 2}
    assert ok(ensure().send(api)) == changed | {"backlogLimit": 2}


def test_a_different_mode_is_a_conflict_that_names_both_and_changes_nothing(api):
    made = ok(ensure().send(api))
    message = refused(ensure(mode="INBOX", maxAttempts=9).send(api), "CONFLICT")
    assert "WORK" in message
    assert "INBOX" in message
    assert ok(ensure(mode="WORK").send(api)) == made


async def test_of_many_who_ask_by_name_at_once_one_makes_it(api, storm):
    answers = [ok(r) for r in await storm([ensure("new", maxAttempts=4) for _ in range(40)])]
    assert all(a == answers[0] for a in answers)
    assert len(ok(api.get("/mailboxes"))["mailboxes"]) == 1


async def test_of_many_who_create_one_name_one_does(api, storm):
    answers = await storm([create("new") for _ in range(20)])
    assert sorted(a.status_code for a in answers) == [201] + [409] * 19


async def test_settings_declared_by_many_at_once_are_those_of_one_of_them(api, storm):
    ok(ensure("declared").send(api))
    answers = await storm(
        [ensure("declared", maxAttempts=i % 5 + 1, backlogLimit=i % 5 + 1) for i in range(30)]
    )
    assert all(ok(a)["maxAttempts"] == ok(a)["backlogLimit"] for a in answers)
    seen = ok(ensure("declared").send(api))
    assert seen["maxAttempts"] == seen["backlogLimit"]


def test_all_mailboxes_are_listed_oldest_first_unless_pages_are_asked_for(api):
    made = [ok(create(f"box {i}").send(api), 201) for i in range(7)]
    assert ok(api.get("/mailboxes")) == {"mailboxes": made, "nextCursor": None}
    found, cursor = [], None
    while True:
        query = {"limit": 3} | ({"cursor": cursor} if cursor else {})
        page = ok(api.get("/mailboxes", params=query))
        found += page["mailboxes"]
        assert len(page["mailboxes"]) <= 3
        cursor = page["nextCursor"]
        if cursor is None:
            break
    assert found == made


def test_more_than_a_page_of_mailboxes_are_all_listed_without_a_limit(
    api, space, database_url, kernel_schema
):
    database.fetch(
        database_url,
        f"SELECT count(*) FROM generate_series(1, 1100) i, LATERAL {kernel_schema}.mailbox_create($1,"
        " gen_random_uuid(), 'box ' || i, NULL, NULL, NULL, NULL, NULL, NULL) r",
        space.id,
    )
    page = ok(api.get("/mailboxes"))
    assert (len(page["mailboxes"]), page["nextCursor"]) == (1100, None)


def test_one_mailbox_is_seen_with_what_is_in_it(api):
    box = mailbox(api, scope(api), "seen", backlogLimit=5)
    sent(api, box)
    listed = ok(api.get("/mailboxes"))["mailboxes"][0]
    seen = ok(box.view().send(api))
    depth = {"ready": 1, "delayed": 0, "leased": 0, "dead": 0}
    assert seen == listed | {"depth": depth, "oldestReadyAt": seen["oldestReadyAt"]}
    refused(api.get(f"/mailboxes/{uuid.uuid4()}"), "NOT_FOUND")


# Who may


class Keys:
    """Clients of one space with keys of fewer permissions."""

    def __init__(self, server, space, admin):
        self._server, self._space, self._admin = server, space, admin

    def client(self, *permissions):
        from tests.support.spaces import Space

        made = self._admin.post(
            f"/v1/admin/spaces/{self._space.id}/keys", json={"label": "k", "permissions": list(permissions)}
        )
        return Space(self._space.id, ok(made, 201)["key"]).client(self._server.url)


@pytest.fixture
def keys(server, space):
    import httpx

    with httpx.Client(
        base_url=server.url,
        headers={"Authorization": "Bearer test-admin-token-0123456789"},
        timeout=20,
        trust_env=False,
    ) as admin:
        yield Keys(server, space, admin)


def test_runtime_alone_finds_and_matches_and_makes_defaults_and_no_more(api, keys):
    made = ok(create("known", maxAttempts=3).send(api), 201)
    with keys.client("runtime") as worker:
        for call in (
            ensure("known"),
            ensure("known", maxAttempts=3),
            ensure("known", mode="WORK", maxAttempts=3),
        ):
            assert ok(call.send(worker)) == made
        assert ok(ensure("new").send(worker))["maxAttempts"] == 5
        for call in (
            ensure("known", maxAttempts=4),
            ensure("newer", maxAttempts=5),
            ensure("x", mode="WORK"),
        ):
            assert "resource_config" in refused(call.send(worker), "FORBIDDEN")
        assert "resource_config" in refused(create("newest").send(worker), "FORBIDDEN")
        assert ok(worker.get("/mailboxes"))["mailboxes"]
        assert ok(worker.get(f"/mailboxes/{made['id']}"))["depth"]
        assert "observe" in refused(worker.get(f"/mailboxes/{made['id']}/messages"), "FORBIDDEN")
        assert "observe" in refused(worker.get("/tasks"), "FORBIDDEN")


def test_a_key_without_runtime_sends_and_takes_nothing(api, keys):
    box = mailbox(api, scope(api))
    with keys.client("observe", "resource_config") as watcher:
        for call in (box.send(), box.recv(), box.submit(), box.admit()):
            assert "runtime" in refused(call.send(watcher), "FORBIDDEN")
        assert ok(box.messages().send(watcher))["messages"] == []
        assert ok(ensure("research", maxAttempts=2).send(watcher))["maxAttempts"] == 2


def test_every_change_of_a_mailbox_is_an_event_of_the_space(api, space, database_url):
    made = ok(ensure("told").send(api))
    ok(ensure("told").send(api))
    ok(ensure("told", maxAttempts=2).send(api))
    told = events(database_url, space.id, "resource.created", "resource.updated")
    assert [(e.type, e.aggregate, e.payload["name"]) for e in told] == [
        ("resource.created", made["id"], "told"),
        ("resource.updated", made["id"], "told"),
    ]
