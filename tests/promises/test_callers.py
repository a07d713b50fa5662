"""Who may not call is told so before anything of the request is looked at: over every route of the document.

What they ask for may exist or not, may be well-formed or not: the answer is the same, and changes nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest

from tests.promises.everyone import OPERATOR, Everyone
from tests.support import spaces
from tests.support.builders import Call, ok, refused
from tests.support.document import Route, routes

UNKNOWN = "0198c9a2-7d3e-7b4c-9a51-2f1c8e6b0d47"
ADMIN = "/v1/admin/spaces"
PERMISSIONS = ["observe", "resource_config", "runtime", "space_admin"]


@dataclass(frozen=True)
class Bad:
    """Headers that open nothing, and what they are told; `space_id`: the space of the path, if not that of
    the calls."""

    headers: dict[str, str | bytes]
    code: str = "UNAUTHENTICATED"
    space_id: str | None = None


@dataclass(frozen=True)
class Place:
    """Where bad callers come from: the space of the calls, and the database that has it."""

    residents: Everyone
    database_url: str

    def key(self, **more):
        """A key of that space, fresh from the operator."""
        given = {"label": "bad", "permissions": PERMISSIONS} | more
        keys = f"{ADMIN}/{self.residents.space.id}/keys"
        return ok(self.residents.door.post(keys, json=given, headers=OPERATOR), 201)

    def another(self):
        """Another space."""
        return spaces.create(self.database_url)


def written(form, place, _):
    key = place.residents.space.key
    return Bad({"Authorization": form(key).encode()})


def revoked(place, _):
    made = place.key()
    path = f"{ADMIN}/{place.residents.space.id}/keys/{made['id']}"
    ok(place.residents.door.delete(path, headers=OPERATOR))
    return Bad({"Authorization": f"Bearer {made['key']}"})


def expired(place, _):
    made = place.key(expiresAt="2026-01-01T00:00:00Z")
    return Bad({"Authorization": f"Bearer {made['key']}"})


def suspended(place, route):
    space = place.another()
    path = f"{ADMIN}/{space.id}"
    ok(place.residents.door.patch(path, json={"suspended": True}, headers=OPERATOR))
    alone = route.operation.get("x-administrator") == "operator"
    return Bad(space.headers, "FORBIDDEN" if alone else "SPACE_SUSPENDED", space.id)


def lacking(place, route):
    enough = route.operation.get("x-permissions", ["space_admin"])
    others = [name for name in PERMISSIONS if name not in enough]
    return Bad(spaces.limited(place.database_url, place.residents.space, *others).headers, "FORBIDDEN")


CALLERS: dict[str, Callable[[Place, Route], Bad]] = {
    "nobody": lambda *_: Bad({}),
    "an empty header": partial(written, lambda _: ""),
    "a scheme without a key": partial(written, lambda _: "Bearer"),
    "a key without a scheme": partial(written, lambda key: key),
    "another scheme": partial(written, lambda key: f"Basic {key}"),
    "an unknown key": partial(written, lambda _: "Bearer rs_unknown"),
    "a key with more": partial(written, lambda key: f"Bearer {key}x"),
    "a key with less": partial(written, lambda key: f"Bearer {key[:-1]}"),
    "a key in capitals": partial(written, lambda key: f"Bearer {key.upper()}"),
    "two keys": partial(written, lambda key: f"Bearer {key}, Bearer {key}"),
    "a key of strange letters": partial(written, lambda _: "Bearer ключ-\U0001f511"),
    "a revoked key": revoked,
    "an expired key": expired,
    "the key of another space": lambda place, _: Bad(spaces.create(place.database_url).headers, "FORBIDDEN"),
    "a key in a space that is none": lambda place, _: Bad(
        place.residents.space.headers, "FORBIDDEN", "nowhere"
    ),
    "the key of a suspended space": suspended,
    "a key without the permission": lacking,
    "the operator in a space": lambda *_: Bad(OPERATOR),
}


def variants(route, call, space_id):
    """Paths and contents: the call itself, the same about what is not there, with a body that is none, and
    with a parameter that is none."""
    parts = call.path.split("/")
    if space_id is not None and len(parts) > 4:
        parts[3 if route.inside else 4] = space_id
    path = "/".join(parts)
    yield path, {"json": call.body}
    for place in route.ids:
        _, other, content = route.with_value(Call(call.method, path, call.body), place, UNKNOWN)
        yield other, {"content": content}
    yield path, {"content": b"nonsense"}
    yield f"{path.partition('?')[0]}?nonsense=1", {"json": call.body}


@pytest.mark.parametrize(
    ("route", "name"),
    [
        pytest.param(route, name, id=f"{name}: {route}")
        for route in routes()
        for name in CALLERS
        if route.inside or name != "the operator in a space"
    ],
)
def test_who_may_not_call_is_told_so_whatever_is_asked_for(
    residents, calls, meant, database_url, route, name
):
    make = CALLERS[name]
    place = Place(residents, database_url)
    who = meant(lambda: make(place, route)) if make in {revoked, expired, lacking} else make(place, route)
    told = set()
    for path, content in variants(route, calls(route), who.space_id):
        response = residents.request(route.method, path, headers=who.headers, **content)
        told.add((refused(response, who.code), frozenset(response.headers)))
        assert not [word for word in words(who) if word in response.text]
    assert len(told) == 1


def words(who):
    """What looks like a secret in those headers."""
    texts = [t.decode() if isinstance(t, bytes) else t for t in who.headers.values()]
    return [word for text in texts for word in text.split() if len(word) > 10]
