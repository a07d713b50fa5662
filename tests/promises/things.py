"""One of everything that has an id, for whoever needs an id of each kind. A new kind of thing joins here."""

import re
from dataclasses import dataclass

import httpx

from tests.promises.everyone import OPERATOR
from tests.promises.rows_messages import box
from tests.support.allowances import allowance
from tests.support.barriers import barrier
from tests.support.budgets import budget, reserved
from tests.support.builders import Call, Once, held, ok
from tests.support.groups import group
from tests.support.permits import pool
from tests.support.queues import Claim, submitted, taken, view
from tests.support.timers import Timers


@dataclass(frozen=True)
class Things:
    """One of everything in a space: ids by kind, and tokens by the room that gave them."""

    client: httpx.Client
    ids: dict[str, str]
    tokens: dict[str, str]
    views: list[Call]

    def look(self):
        """All of it as its own space sees it."""
        return [ok(each.send(self.client)) for each in self.views]


def everything(client, space, door):
    """One of every kind of thing that has an id, held where it can be."""
    it = box(client)
    once, claim = Once(it.scope), Claim(it.scope)
    task = submitted(client, it)
    delivery = taken(client, it.recv(lease_s=3600))
    browsers = pool(client, it.scope, 1)
    grant = ok(browsers.acquire(lease_s=3600).send(client))
    waiter = ok(browsers.wait(ttlSeconds=3600).send(client))
    money = budget(client, it.scope)
    searches, queued = _searches(client, it)
    meeting = barrier(client, it.scope)
    jury = group(client, it)
    ok(jury.join(task).send(client))
    timer = ok(Timers(it.scope).create(0).send(client))
    made = {"label": "theirs", "permissions": ["runtime"]}
    key = ok(door.post(f"/v1/admin/spaces/{space.id}/keys", json=made, headers=OPERATOR), 201)
    return Things(
        client,
        {
            "scope": it.scope,
            "mailbox": it.id,
            "message": delivery.id,
            "task": task,
            "key": key["id"],
            "pool": browsers.id,
            "grant": grant["grantId"],
            "permit waiter": waiter["waiterId"],
            "budget": money.id,
            "reservation": reserved(client, money),
            "allowance": searches.id,
            "allowance waiter": queued["waiterId"],
            "barrier": meeting.id,
            "task group": jury.id,
            "timer": timer["id"],
        },
        {
            "once": held(client, once, lease_s=3600),
            "claims": ok(claim.acquire(lease_s=3600).send(client), 201)["token"],
            "messages": delivery.token,
            "grants": grant["token"],
            "timers": timer["token"],
        },
        [
            *(it.view(), it.messages(), view(task), Call("GET", f"/scopes/{it.scope}")),
            *(once.view(), claim.view(), browsers.view(), money.view(), searches.view()),
            *(meeting.view(), jury.view(), Timers(it.scope).poll()),
        ],
    )


def _searches(client, it):
    """An allowance, and who waits for it, for a day."""
    searches = allowance(client, it.scope, 1)
    ok(searches.consume().send(client))
    queued = ok(searches.wait(ttlSeconds=3600).send(client))
    ok(searches.cool(86_400).send(client))  # whatever time of the day it is, nothing is granted meanwhile
    return searches, queued


def kind_of(name):
    """The kind of thing that a place of this name refers to."""
    word = re.sub(r"_?id$", "", name, flags=re.IGNORECASE)
    words = re.sub(r"_|(?<=[a-z])(?=[A-Z])", " ", word).lower()
    return {"parent": "scope", "parent scope": "scope", "waiter": "permit waiter", "group": "task group"}.get(
        words, words
    )
