"""What README tells a stranger to do works as printed; what pages name exists."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import machine, pages, sources
from tests.support.dev import dev
from tests.support.pages import shell
from tests.support.processes import RUNSTATE

README = pages.page("README.md")
PAGES = sources.files(".md")


def blocks(language, after):
    return pages.texts(README, language, after)


@pytest.fixture(scope="module")
def served():
    with machine.reachable_folder() as folder, dev([RUNSTATE, "dev"], folder) as started:
        assert set(started.exports) == {"RUNSTATE_BASE_URL", "RUNSTATE_SPACE_ID", "RUNSTATE_API_KEY"}
        yield started.exports


@pytest.mark.processes
def test_the_python_example_is_done_by_one_process_and_printed_by_all(served, tmp_path):
    (tmp_path / "report.py").write_text(blocks("python", "Save this as `report.py`")[0])
    (tmp_path / ".venv").symlink_to(sys.prefix)
    script = blocks("sh", "## Once, in Python")[0]
    printed = shell(script, tmp_path, served).splitlines()
    workers = {line.split()[1] for line in printed if line.endswith(" does the work")}
    assert len(workers) == 1
    report = f"{{'company': 'acme', 'by': {workers.pop()}}}"
    promised = blocks("text", "## Once, in Python")[0].splitlines()
    assert len(printed) == len(promised) == 1 + printed.count(report)
    pid = re.search(r"\d+", promised[0])[0]
    assert [re.sub(r"\b\d+\b", pid, line) for line in printed] == promised

    # "Start one again, and the recorded result comes straight back."
    assert shell(". .venv/bin/activate; python report.py", tmp_path, served) == report + "\n"


@pytest.mark.processes
def test_the_curl_lines_print_what_the_readme_prints(served, tmp_path):
    part = "## The same by curl"
    assert shell(blocks("sh", part)[0], tmp_path, served) == blocks("text", part)[0]


def test_every_make_target_that_a_page_names_exists():
    targets = set(re.findall(r"(?m)^([a-z-]+):", (sources.ROOT / "Makefile").read_text()))
    for page in PAGES:
        named = re.findall(r"(?m)(?:^|`)make ([a-z-]+)", page.read_text())
        assert set(named) <= targets, sources.name(page)


def test_the_targets_of_the_scripts_run_scripts_that_exist():
    for target in ("demo", "chaos", "bench"):
        said = subprocess.run(
            ["make", "--no-print-directory", "-n", target],
            cwd=sources.ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        module = re.search(r"-m (\S+)", said.splitlines()[-1])[1]
        place = sources.ROOT / module.replace(".", os.sep)
        assert place.with_suffix(".py").exists() or (place / "__main__.py").exists(), module


def test_every_command_that_a_page_names_exists():
    said = subprocess.run([RUNSTATE, "--help"], capture_output=True, text=True, check=True).stdout
    commands = set(re.findall(r"(?m)^    (\w+)", said))
    assert {"dev", "serve", "migrate"} <= commands
    for page in PAGES:
        named = re.findall(r"(?m)(?:^|`)runstate ([a-z]+)\b", page.read_text())
        assert set(named) <= commands, sources.name(page)


def test_every_link_between_pages_leads_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", page.read_text()):
            assert (page.parent / Path(target)).exists(), f"{sources.name(page)} links to {target}"


def test_every_page_is_listed_in_the_index_and_the_index_in_the_readme():
    index = pages.page("docs/README.md")
    here = [page for page in PAGES if page.parent == sources.ROOT / "docs" and page.name != "README.md"]
    assert [page.name for page in here if f"]({page.name})" not in index] == []
    assert "](docs/README.md)" in README
