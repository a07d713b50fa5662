"""What tasks need, and the resources of a space that has some of each kind."""

from dataclasses import dataclass
from typing import Any

import httpx

from tests.support.allowances import DAY, Allowance, allowance
from tests.support.budgets import Budget, budget
from tests.support.builders import ok
from tests.support.permits import Pool, pool
from tests.support.queues import Mailbox, mailbox


def needs(
    pools: dict[str, int] | None = None,
    quotas: dict[str, int] | None = None,
    budgets: dict[str, int] | None = None,
) -> dict[str, Any]:
    """Requirements as they are on the wire: names with amounts."""
    units = {
        kind: [{"name": name, "units": units} for name, units in (named or {}).items()]
        for kind, named in (("pools", pools), ("quotas", quotas))
    }
    money = [{"name": name, "reserveMinor": str(minor)} for name, minor in (budgets or {}).items()]
    return {kind: named for kind, named in (units | {"budgets": money}).items() if named}


RENDER = needs({"browsers": 1}, {"search-api": 1}, {"model-usd": 40})


@dataclass(frozen=True)
class Site:
    """A mailbox, and one resource of each kind."""

    box: Mailbox
    browsers: Pool
    searches: Allowance
    money: Budget

    def left(self, client: httpx.Client) -> tuple[int, int, int]:
        """Units lent, units consumed, minor units reserved."""
        return (
            ok(self.browsers.view().send(client))["unitsUsed"],
            ok(self.searches.view().send(client))["consumed"],
            int(ok(self.money.view().send(client))["reservedMinor"]),
        )


def site(
    client: httpx.Client,
    scope: str,
    *,
    browsers: int = 2,
    searches: int = 100,
    minor: int = 1000,
    window_s: int = DAY,
) -> Site:
    """As many browsers, searches per window and minor units as said."""
    return Site(
        mailbox(client, scope, "render"),
        pool(client, scope, browsers),
        allowance(client, scope, searches, window_s),
        budget(client, scope, minor),
    )
