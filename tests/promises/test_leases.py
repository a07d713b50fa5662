"""What every lease promises, held over every room that hands them out. A new room joins by a row."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.promises.rows_messages import box
from tests.support.builders import Call, Once, ok, refused, scope
from tests.support.journal import events
from tests.support.queues import Claim, Delivery, Mailbox, row, sent, submitted, task


@dataclass(frozen=True)
class Room:
    """How one room's leases are taken, held and shown. `make` returns a thing of its own to hold; whoever is
    given a lease is given a token at the top of the answer."""

    name: str
    make: Callable[[Any], Any]
    acquire: Callable[[Any, str, float], Call]
    renew: Callable[[Any, str, float], Call]
    settles: list[Callable[[Any, str], Call]]
    view: Callable[[Any, Any], dict[str, Any]]
    free: str

    def __str__(self) -> str:
        return self.name

    def take(self, client, thing, holder="a", lease_s=60):
        """Take it; returns the answer with token and end of the lease."""
        response = self.acquire(thing, holder, lease_s).send(client)
        assert response.is_success, response.text
        assert response.json()["token"]
        return response.json()

    def leaves(self, client, thing, holder="b"):
        """Whether a caller is told, rightly, that it is held."""
        response = self.acquire(thing, holder, 60).send(client)
        return not (response.content and "token" in response.json())


@dataclass(frozen=True)
class Letter:
    """A message of its own in a mailbox of its own."""

    box: Mailbox
    id: str

    def held(self, token):
        """What the holder of that token can do."""
        return Delivery(self.id, token, 1, None)


def _letter(client):
    it = box(client)
    return Letter(it, sent(client, it))


def _task(client):
    it = box(client)
    return Letter(it, submitted(client, it))


DELIVERIES = {
    "renew": lambda letter, token, lease_s: letter.held(token).renew(lease_s),
    "settles": [
        lambda letter, token: letter.held(token).complete(),
        lambda letter, token: letter.held(token).nack(),
        lambda letter, token: letter.held(token).nack(retry=False),
        lambda letter, token: letter.held(token).nack(handBack=True),
    ],
}
ROOMS = [
    Room(
        name="once",
        make=lambda client: Once(scope(client)),
        acquire=lambda once, holder, lease_s: once.acquire(holder, lease_s=lease_s),
        renew=lambda once, token, lease_s: once.renew(token, lease_s),
        settles=[lambda once, token: once.complete(token), lambda once, token: once.fail(token)],
        view=lambda client, once: ok(once.view().send(client)),
        free="OPEN",
    ),
    Room(
        name="claims",
        make=lambda client: Claim(scope(client)),
        acquire=lambda claim, holder, lease_s: claim.acquire(holder, lease_s=lease_s),
        renew=lambda claim, token, lease_s: claim.renew(token, lease_s),
        settles=[lambda claim, token: claim.release(token)],
        view=lambda client, claim: ok(claim.view().send(client)),
        free="FREE",
    ),
    Room(
        name="messages",
        make=_letter,
        acquire=lambda letter, holder, lease_s: letter.box.recv(holder, lease_s),
        view=lambda client, letter: row(client, letter.box, letter.id),
        free="READY",
        **DELIVERIES,
    ),
    Room(
        name="tasks",
        make=_task,
        acquire=lambda letter, holder, lease_s: letter.box.admit(holder, lease_s),
        view=lambda client, letter: task(client, letter.id),
        free="QUEUED",
        **DELIVERIES,
    ),
]
EVERY = pytest.mark.parametrize("room", ROOMS, ids=str)


@EVERY
def test_a_lease_ends_by_itself_and_can_be_taken_at_once(api, room, clock):
    thing = room.make(api)
    room.take(api, thing, lease_s=60)
    clock.shift(59)
    assert room.leaves(api, thing)
    clock.shift(2)
    assert room.view(api, thing)["state"] == room.free
    room.take(api, thing, "b")


@EVERY
def test_a_lapsed_lease_is_never_revived(api, room, clock):
    thing = room.make(api)
    token = room.take(api, thing)["token"]
    clock.shift(61)
    refused(room.renew(thing, token, 60).send(api), "STALE_CLAIM")
    assert room.view(api, thing)["state"] == room.free


@EVERY
def test_a_token_that_was_taken_over_settles_nothing(api, room, clock):
    thing = room.make(api)
    token = room.take(api, thing)["token"]
    clock.shift(61)
    room.take(api, thing, "b")
    before = room.view(api, thing)
    for settle in room.settles:
        refused(settle(thing, token).send(api), "STALE_CLAIM")
    refused(room.renew(thing, token, 60).send(api), "STALE_CLAIM")
    assert room.view(api, thing) == before


@EVERY
def test_a_token_nobody_was_given_is_stale_never_not_found(api, room):
    thing = room.make(api)
    for call in (room.renew(thing, "guess", 60), *(settle(thing, "guess") for settle in room.settles)):
        refused(call.send(api), "STALE_CLAIM")
    room.take(api, thing)
    for call in (room.renew(thing, "guess", 60), *(settle(thing, "guess") for settle in room.settles)):
        refused(call.send(api), "STALE_CLAIM")


@EVERY
def test_a_renewal_counts_from_now_and_never_shortens(api, room, clock):
    thing = room.make(api)
    token = room.take(api, thing, lease_s=60)["token"]
    ends = [ok(room.renew(thing, token, lease_s).send(api))["leaseExpiresAt"] for lease_s in (600, 60, 1)]
    assert ends[0] == ends[1] == ends[2]
    clock.shift(500)
    assert ok(room.renew(thing, token, 600).send(api))["leaseExpiresAt"] > ends[0]
    clock.shift(500)
    assert room.leaves(api, thing)


@EVERY
def test_the_holder_itself_is_told_that_it_is_held(api, room):
    thing = room.make(api)
    room.take(api, thing)
    assert room.leaves(api, thing, "a")


@EVERY
def test_a_token_is_random_and_goes_to_its_holder_alone(api, room, space, database_url, server):
    things = [room.make(api) for _ in range(3)]
    answers = [room.take(api, thing) for thing in things]
    tokens = {answer["token"] for answer in answers}
    assert len(tokens) == 3
    assert all(re.fullmatch(r"[0-9a-f]{32}", token) for token in tokens)
    shown = "".join(str(room.view(api, thing)) for thing in things)
    shown += "".join(room.acquire(thing, "b", 60).send(api).text for thing in things)
    shown += "".join(event.text for event in events(database_url, space.id))
    shown += server.log()
    assert not [token for token in tokens if token in shown]
