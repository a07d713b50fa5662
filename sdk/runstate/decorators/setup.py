"""setup: what a program takes from, created or checked before anything is taken."""

from collections.abc import Awaitable, Callable, Mapping
from copy import copy
from typing import Any, TypeAlias

from runstate._background import shared
from runstate._config import check_name, check_whole
from runstate._transport import Space
from runstate._waits import until_answered
from runstate.client import space_of
from runstate.decorators.budget import CURRENCY, SCALE, budget_settings
from runstate.decorators.limit import quota_size
from runstate.errors import ConfigError
from runstate.handles.allowances import sized_allowance_id
from runstate.handles.budgets import checked as checked_budget
from runstate.handles.lines import UNITS_MAX
from runstate.handles.permits import sized_pool_id
from runstate.run import RunCore

Sizes: TypeAlias = Mapping[str, Any]
Step: TypeAlias = Callable[[Space], Awaitable[Any]]

_OUTAGE_S_MAX = 60.0


class SetupRun(RunCore):
    """The part of a Run that creates what the others take from."""

    def setup(
        self, limits: Sizes | None = None, slots: Sizes | None = None, budgets: Sizes | None = None
    ) -> None:
        """As `runstate.setup`."""
        shared.run(self._set_up(_planned(limits, slots, budgets)))

    async def asetup(
        self, limits: Sizes | None = None, slots: Sizes | None = None, budgets: Sizes | None = None
    ) -> None:
        """As `setup`."""
        await shared.arun(self._set_up(_planned(limits, slots, budgets)))

    async def _set_up(self, steps: list[Step]) -> None:
        if self._ended is not None:
            raise copy(self._ended)
        for step in steps:
            await self._patiently(step)

    async def _patiently(self, step: Step) -> None:
        async def ask(_wait_ms: int) -> bool:
            await step(space_of(self.account.client()))
            return True

        await until_answered(
            ask, timeout_s=_OUTAGE_S_MAX, what="the server's answer", on_outage=self.account.log_outage
        )


def _planned(limits: Sizes | None, slots: Sizes | None, budgets: Sizes | None) -> list[Step]:
    """What is to be created or checked, in order. Refuses (ConfigError) any size it cannot use, before the
    server is asked for anything."""
    return [
        *(_pool(name, given) for name, given in _items("slots", slots)),
        *(_quota(name, given) for name, given in _items("limits", limits)),
        *(_budget(name, given) for name, given in _items("budgets", budgets)),
    ]


def _items(what: str, sizes: Any) -> list[tuple[str, Any]]:
    if sizes is None:
        return []
    if not isinstance(sizes, Mapping):
        raise ConfigError(f"{what}= maps names to sizes, not {sizes!r}")
    return [(check_name(f"a name in {what}=", name), given) for name, given in sizes.items()]


def _pool(name: str, given: Any) -> Step:
    size = _named(name, given, "max")["max"] if isinstance(given, Mapping) else given
    units = check_whole(f"the size of {name!r}", size, 1, UNITS_MAX)
    return lambda space: sized_pool_id(space, name, units)


def _quota(name: str, given: Any) -> Step:
    size = _named(name, given, "max", "per")
    checked = quota_size(name, size["max"], size["per"])
    assert checked is not None  # noqa: S101 - both are given
    return lambda space: sized_allowance_id(space, name, *checked)


def _budget(name: str, given: Any) -> Step:
    options = dict(given) if isinstance(given, Mapping) else {"limit": given}
    if not {"limit"} <= set(options) <= {"limit", "currency", "scale"} or options["limit"] is None:
        raise ConfigError(f"the budget {name!r} is given by limit, currency and scale, not {given!r}")
    settings = budget_settings(name, **{"currency": CURRENCY, "scale": SCALE, **options})
    return lambda space: checked_budget(space, name, *settings)


def _named(name: str, given: Any, *fields: str) -> Mapping[str, Any]:
    if not isinstance(given, Mapping) or set(given) != set(fields):
        raise ConfigError(f"the size of {name!r} is given by {' and '.join(fields)}, not {given!r}")
    return given
