"""Whatever a long poll waits for, the report of waits has a sentence for it."""

import re

import pytest

from runstate_server.primitives.ops.reads import waits
from tests.support import sources

ROUTES = [path.read_text() for path in sources.files(".py") if path.name == "routes.py"]
FOUND = sorted({kind for text in ROUTES for kind in re.findall(r'\bWaiting\("(\w+)"', text)})


@pytest.mark.parametrize("kind", FOUND)
def test_each_kind_of_wait_is_told_of_in_its_own_words(kind):
    task = ["research:acme", "research", None] if kind == "task" else [None] * 3
    said = waits._said(kind, "start", [], task)
    assert re.search(rf"\b{kind}\b", said)
    assert ("start" if kind != "task" else "research:acme") in said
    assert "None" not in said


def test_there_are_such_kinds():
    assert {"claim", "once", "task", "barrier", "timer"} <= set(FOUND)
