"""The project's own files, and its SQL taken apart, for the tests of the house."""

import re
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SERVER = ROOT / "server/runstate_server"
ROOMS = SERVER / "primitives"
_SKIPPED = {".git", ".venv", "build", "dist", "__pycache__"}
_FUNCTION = re.compile(
    r"^CREATE (?:OR REPLACE )?FUNCTION (?P<name>[\w.]+)\s*\(.*?\$(?P<tag>\w*)\$.*?\$(?P=tag)\$[^;]*;",
    re.DOTALL | re.MULTILINE | re.IGNORECASE,
)


def files(*suffixes: str) -> list[Path]:
    """Files of the working tree that git tracks or would; without git, all that are not made by tools."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        found = [ROOT / name for name in said.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        found = [p for p in ROOT.rglob("*") if not _SKIPPED & set(p.relative_to(ROOT).parts)]
    return sorted(p for p in set(found) if p.is_file() and (not suffixes or p.suffix in suffixes))


def kernel_files() -> list[Path]:
    """The SQL that is installed as functions: the floor's and the rooms'."""
    return [p for p in files(".sql") if p.is_relative_to(SERVER)]


def rooms() -> list[Path]:
    """The folders of the rooms."""
    return sorted(p.parent for p in ROOMS.glob("*/__init__.py"))


def rooms_by_rank() -> list[Path]:
    """The same, highest rank first, as the import contract orders them."""
    import tomllib  # not on the oldest Python, where the SDK's tests need the rest of this module

    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    ranks = next(c["layers"] for c in contracts if c["name"] == "ranks of the rooms")
    return [ROOMS / word.strip() for layer in ranks for word in layer.split("|")]


def name(path: Path) -> str:
    """The path as people say it, from the root of the project."""
    return str(path.relative_to(ROOT))


def nothing(found: Iterable[str]) -> None:
    """Fails with every finding on a line of its own."""
    found = list(found)
    assert not found, "\n" + "\n".join(found)


def without_comments(sql: str) -> str:
    """The SQL without its -- comments, line for line."""
    return re.sub(r"--[^\n]*", "", sql)


@dataclass(frozen=True)
class Function:
    """One CREATE FUNCTION: where it stands, how long it is, and its text without comments."""

    file: Path
    line: int
    name: str
    lines: int
    text: str

    @property
    def place(self) -> str:
        """For messages."""
        return f"{name(self.file)}:{self.line} {self.name}"


def functions() -> Iterator[Function]:
    """Every function of the kernel, in the order of files and lines."""
    for file in kernel_files():
        sql = file.read_text()
        for found in _FUNCTION.finditer(sql):
            text = found[0]
            line = sql.count("\n", 0, found.start()) + 1
            yield Function(file, line, found["name"], text.count("\n") + 1, without_comments(text))
