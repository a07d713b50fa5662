"""The decorators bound to the test's own space on a real server."""

from dataclasses import dataclass

import pytest

import runstate
from runstate.decorators import defaults
from runstate.run import Account


@dataclass
class Here:
    """Where the test's space is: for clients of its own, and for programs in other processes."""

    url: str
    space_id: str
    api_key: str

    @property
    def settings(self) -> dict[str, str]:
        return {"base_url": self.url, "space_id": self.space_id, "api_key": self.api_key}

    @property
    def environment(self) -> dict[str, str]:
        return {f"RUNSTATE_{name.upper()}": value for name, value in self.settings.items()}

    def run(self, name: str = "default", **settings: str) -> runstate.Run:
        """The run of that name as another process would see it: a client, holder and session of its own."""
        return defaults.Run(Account(**{**self.settings, **settings}), name=name)


@pytest.fixture
def here(server, space, monkeypatch: pytest.MonkeyPatch) -> Here:
    """The module's functions work in this space for the length of the test."""
    place = Here(server.url, space.id, space.key)
    for name, value in place.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("RUNSTATE_RUN", raising=False)
    monkeypatch.setattr(defaults._defaults, "run", defaults.Run(Account()))
    return place
