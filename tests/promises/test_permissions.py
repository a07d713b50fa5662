"""What a key may do: each route is opened by any of the permissions of its row, and by nothing else.

Held over the table of shapes; a new room joins by its rows, see table.py.
"""

import pytest

from tests.promises.kinds import code, post
from tests.promises.table import SHAPES
from tests.support import spaces
from tests.support.builders import Call, refused
from tests.support.queues import mailbox

ALL = ("runtime", "observe", "resource_config", "space_admin")


@pytest.fixture
def with_only(server, space, database_url):
    """A client of the space whose key has these permissions alone."""
    opened = []

    def make(*permissions):
        client = spaces.limited(database_url, space, *permissions).client(server.url)
        opened.append(client)
        return client

    yield make
    for client in opened:
        client.close()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_any_of_its_permissions_opens_a_route(api, with_only, shape):
    for permission in shape.needs:
        assert code(shape.call(api).send(with_only(permission))) is None


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_missing_permission_is_named_before_the_request_is_looked_at(api, with_only, shape):
    others = [name for name in ALL if name not in shape.needs]
    call = shape.call(api)
    with_all_others = with_only(*others)
    for response in (call.send(with_all_others), post(with_all_others, call, b"nonsense")):
        message = refused(response, "FORBIDDEN")
        assert all(repr(permission) in message for permission in shape.needs)
    assert code(call.send(api)) is None  # it changed nothing


SETTINGS = [{"maxAttempts": 7}, {"backlogLimit": 7}, {"mode": "INBOX"}]


def by_name(**settings):
    return Call("PUT", "/mailboxes/by-name/research", settings)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_settings_of_a_mailbox_are_for_resource_config_unless_they_are_as_they_are(api, with_only, settings):
    worker, operator = with_only("runtime"), with_only("resource_config")
    message = refused(by_name(**settings).send(worker), "FORBIDDEN")  # nothing is there yet
    assert "'resource_config'" in message
    assert api.get("/mailboxes").json()["mailboxes"] == []
    assert code(by_name(**settings).send(operator)) is None
    before = by_name().send(worker).json()
    assert before.items() >= settings.items()
    assert by_name(**settings).send(worker).json() == before
    refused(by_name(**settings | {"maxAttempts": 9}).send(worker), "FORBIDDEN")
    assert by_name().send(api).json() == before


def test_a_worker_may_find_a_mailbox_by_name_and_make_it_with_the_defaults(api, with_only):
    worker = with_only("runtime")
    made = by_name().send(worker).json()
    assert (made["mode"], made["backlogLimit"], made["maxAttempts"]) == ("WORK", None, 5)
    assert by_name().send(worker).json() == made
    refused(Call("POST", "/mailboxes", {"name": "other"}).send(worker), "FORBIDDEN")
    assert [m["id"] for m in api.get("/mailboxes").json()["mailboxes"]] == [made["id"]]
    assert mailbox(api, "", "other").id != made["id"]
