"""docs/gather-stop-and-wait.md: its programs run, and print what the page shows."""

import os
import sys
from pathlib import Path

import pytest

from tests.support import pages

NAME = "docs/gather-stop-and-wait.md"

pytestmark = pytest.mark.processes


@pytest.fixture
def variables(server, space):
    """Of a shell in which `python` is this one."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return space.environment(server.url) | {"PATH": path}


def test_the_gather_prints_what_the_page_shows_below_it(tmp_path, variables):
    found = pages.blocks(pages.page(NAME))
    assert pages.save_programs(found, tmp_path) == ["reviews.py"]
    pairs = pages.shown(found)
    assert len(pairs) == 1
    pages.check_shown(NAME, pairs, pages.run_blocks([sh.text for sh, _ in pairs], tmp_path, variables))


GROUP = """SUCCESS
{'outcome': 'SUCCESS', 'outcomeReason': None}
{'state': 'CANCELLED', 'outcome': None, 'reason': 'group_finalized'}
"""
STOP = "{'scopes': 2, 'claims': 1, 'timers': 1, 'tasks': 3}\n"


@pytest.mark.parametrize(("after", "prints"), [("## Task groups", GROUP), ("## Stop", STOP)])
def test_objects_as_shown(tmp_path, variables, after, prints):
    program = pages.texts(pages.page(NAME), "python", after)[0]
    (tmp_path / "graph.py").write_text(program)
    assert pages.shell("python graph.py", tmp_path, variables) == prints
