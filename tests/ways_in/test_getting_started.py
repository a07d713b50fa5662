"""A stranger's walk: a clean clone, `make up`, and docs/getting-started.md by copy and paste."""

import re
import shutil
import site
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import machine, pages, sources
from tests.support.dev import dev

NAME = "docs/getting-started.md"
CLEAN = {"PYTHONPATH": ""}  # of the clone alone


def clone(folder):
    """A clean clone, with what the working tree has changed since the last commit."""
    clone = ["git", "clone", "--quiet", str(sources.ROOT), str(folder)]
    if subprocess.run(clone, capture_output=True, check=False).returncode:
        folder.mkdir()  # not a repository of ours: what it would track is copied below
    for path in sources.files():
        place = folder / sources.name(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, place)
    return folder


def spare_the_downloads(checkout):
    """A .venv that sees the packages of this one, so that pip finds all that is pinned in place and asks no
    registry. Runstate itself is not seen through it: `make` installs the clone's."""
    subprocess.run([sys.executable, "-m", "venv", checkout / ".venv"], check=True)
    [inside] = (checkout / ".venv/lib").glob("python*/site-packages")
    seen = [p for p in site.getsitepackages() if Path(p).is_dir()]
    (inside / "packages-of-the-tests.pth").write_text("\n".join(seen) + "\n")


@pytest.fixture(scope="module")
def walk():
    """The clone, and what `make up` printed in it."""
    with machine.reachable_folder() as folder:
        checkout = clone(folder / "runstate")
        spare_the_downloads(checkout)
        [command] = pages.texts(pages.page(NAME), "console")
        with dev(command.split(), folder, cwd=checkout, **CLEAN) as started:
            yield checkout, started


@pytest.mark.processes
def test_make_up_in_a_clean_clone_prints_what_the_page_shows(walk):
    _, started = walk
    promised = pages.texts(pages.page(NAME), "text")[0]
    printed = started.printed[started.printed.index("Runstate serves") :]  # after what make and pip say
    printed = re.sub(r"\(data in .*?\)", "(data in ~/.local/share/runstate)", printed)
    port = started.exports["RUNSTATE_BASE_URL"].rpartition(":")[2]
    assert pages.leveled([printed.replace(port, "8080")]) == pages.leveled([promised])


@pytest.mark.processes
def test_every_block_prints_what_the_page_shows_below_it(walk):
    checkout, started = walk
    found = pages.blocks(pages.page(NAME), "## 2.")
    assert pages.save_programs(found, checkout) == ["report.py"]
    pairs = pages.shown(found)
    assert len(pairs) >= 8
    printed = pages.run_blocks([sh.text for sh, _ in pairs], checkout, started.exports | CLEAN)
    promised = ["" if answer is None else answer.text for _, answer in pairs]
    assert pages.leveled(printed) == pages.leveled(promised)


@pytest.mark.processes
def test_the_walk_ran_the_clone_s_own_server(walk):
    checkout, _ = walk
    where = "import runstate, runstate_server as s; print(runstate.__file__, s.__file__)"
    said = subprocess.run(
        [checkout / ".venv/bin/python", "-P", "-c", where], capture_output=True, text=True, check=True, env={}
    ).stdout
    assert all(path.startswith(str(checkout)) for path in said.split()), said
