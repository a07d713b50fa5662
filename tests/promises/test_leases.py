"""What every lease promises, held over every room that hands them out. A new room joins by a row."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.builders import Call, Once, ok, refused, scope
from tests.support.journal import events


@dataclass(frozen=True)
class Room:
    """How one room's leases are taken, held and shown. `make` returns a thing of its own to hold."""

    name: str
    make: Callable[[Any], Any]
    acquire: Callable[[Any, str, float], Call]
    renew: Callable[[Any, str, float], Call]
    settles: list[Callable[[Any, str], Call]]
    view: Callable[[Any], Call]
    free: str

    def __str__(self) -> str:
        return self.name

    def take(self, client, thing, holder="a", lease_s=60):
        """Take it; returns the answer with token and end of the lease."""
        answer = ok(self.acquire(thing, holder, lease_s).send(client))
        assert answer["token"], answer
        return answer


ROOMS = [
    Room(
        name="once",
        make=lambda client: Once(scope(client)),
        acquire=lambda once, holder, lease_s: once.acquire(holder, lease_s=lease_s),
        renew=lambda once, token, lease_s: once.renew(token, lease_s),
        settles=[lambda once, token: once.complete(token), lambda once, token: once.fail(token)],
        view=lambda once: once.view(),
        free="OPEN",
    )
]
EVERY = pytest.mark.parametrize("room", ROOMS, ids=str)


@EVERY
def test_a_lease_ends_by_itself_and_can_be_taken_at_once(api, room, clock):
    thing = room.make(api)
    room.take(api, thing, lease_s=60)
    clock.shift(59)
    assert "token" not in room.acquire(thing, "b", 60).send(api).json()
    clock.shift(2)
    assert ok(room.view(thing).send(api))["state"] == room.free
    room.take(api, thing, "b")


@EVERY
def test_a_lapsed_lease_is_never_revived(api, room, clock):
    thing = room.make(api)
    token = room.take(api, thing)["token"]
    clock.shift(61)
    refused(room.renew(thing, token, 60).send(api), "STALE_CLAIM")
    assert ok(room.view(thing).send(api))["state"] == room.free


@EVERY
def test_a_token_that_was_taken_over_settles_nothing(api, room, clock):
    thing = room.make(api)
    token = room.take(api, thing)["token"]
    clock.shift(61)
    room.take(api, thing, "b")
    before = ok(room.view(thing).send(api))
    for settle in room.settles:
        refused(settle(thing, token).send(api), "STALE_CLAIM")
    refused(room.renew(thing, token, 60).send(api), "STALE_CLAIM")
    assert ok(room.view(thing).send(api)) == before


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
    assert "token" not in room.acquire(thing, "b", 60).send(api).json()


@EVERY
def test_the_holder_itself_is_told_that_it_is_held(api, room):
    thing = room.make(api)
    room.take(api, thing)
    assert "token" not in room.acquire(thing, "a", 60).send(api).json()


@EVERY
def test_a_token_is_random_and_goes_to_its_holder_alone(api, room, space, database_url, server):
    things = [room.make(api) for _ in range(3)]
    answers = [room.take(api, thing) for thing in things]
    tokens = {answer["token"] for answer in answers}
    assert len(tokens) == 3
    assert all(re.fullmatch(r"[0-9a-f]{32}", token) for token in tokens)
    shown = "".join(room.view(thing).send(api).text for thing in things)
    shown += "".join(room.acquire(thing, "b", 60).send(api).text for thing in things)
    shown += "".join(event.text for event in events(database_url, space.id))
    shown += server.log()
    assert not [token for token in tokens if token in shown]
