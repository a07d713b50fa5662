"""A Dockerfile without Docker: its steps carried out in folders of this machine, with the Python that runs
the tests in the place of the base image's."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

STEP_S_MAX = 300
_OURS = re.compile(r"(?<![\w.-])/srv(?=/)")  # absolute paths of the image that its steps make


@dataclass(frozen=True)
class Step:
    """One instruction: RUN, and what."""

    word: str
    text: str


def steps(dockerfile: str) -> list[Step]:
    """The instructions in their order, comments and continuations resolved."""
    lines = [line for line in dockerfile.splitlines() if not line.lstrip().startswith("#")]
    whole = re.sub(r"\\\n", " ", "\n".join(lines))
    return [Step(*re.split(r"\s+", line.strip(), maxsplit=1)) for line in whole.splitlines() if line.strip()]


def let_in(paths: Iterable[str], dockerignore: str) -> set[str]:
    """Those of the context's files that a .dockerignore leaves in it: the last pattern that fits decides."""
    rules = [
        (_pattern(line.removeprefix("!")), line.startswith("!"))
        for line in map(str.strip, dockerignore.splitlines())
        if line and not line.startswith("#")
    ]
    return {
        path
        for path in paths
        if next((kept for pattern, kept in reversed(rules) if pattern.match(path)), True)
    }


def _pattern(text: str) -> re.Pattern[str]:
    """Of one line: it fits a path and everything below it."""
    places = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", text.strip("/"))
    return re.compile("".join(places.get(part, re.escape(part)) for part in parts) + "(?:/|$)")


@dataclass
class Image:
    """What a Dockerfile makes, below `folder`. Afterwards `root` stands for / of the last stage."""

    folder: Path
    context: Path  # holds what the .dockerignore lets in
    variables: dict[str, str] = field(default_factory=dict)
    said: dict[str, str] = field(default_factory=dict)  # USER, CMD, HEALTHCHECK, … of the last stage
    stages: dict[str, Path] = field(default_factory=dict)
    _place: Path | None = None
    _stage: str = ""

    @property
    def root(self) -> Path:
        return self.folder / "image"

    def build(self, found: Iterable[Step]) -> None:
        """Carry the steps out. Raises AssertionError with what a RUN said when it fails."""
        base = self.folder / "base"
        base.mkdir()
        (base / "python").symlink_to(sys._base_executable)
        for step in found:
            match step.word:
                case "FROM":
                    self._begin(step.text)
                case "ENV":
                    self._set(step.text)
                case "WORKDIR":
                    self._place = self._here(step.text)
                    self._place.mkdir(parents=True, exist_ok=True)
                case "COPY":
                    self._copy(step.text.split())
                case "RUN":
                    self._run(step.text)
                case _:
                    self.said[step.word] = step.text

    def environment(self) -> dict[str, str]:
        """That of a process in the image: this one's, without what would show it the working tree, plus the
        image's own. pip may keep what it has fetched, here."""
        path = f"{self.folder / 'base'}:{os.environ['PATH']}"
        mine = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
        own = {k: v.replace("$PATH", path) for k, v in self.variables.items() if k != "PIP_NO_CACHE_DIR"}
        return mine | {"PATH": path} | own

    def moved(self, text: str) -> str:
        """Text of the Dockerfile with the image's own paths where they are here."""
        return _OURS.sub(f"{self.root}/srv", text)

    def files(self) -> set[str]:
        """Every path in it."""
        return {str(path.relative_to(self.root)) for path in self.root.rglob("*")}

    def _begin(self, text: str) -> None:
        if self.root.exists():
            self.stages[self._stage] = self.root.rename(self.folder / f"stage-{len(self.stages)}")
        self._stage = text.partition(" AS ")[2]
        self.root.mkdir()
        self._place = self.root
        self.variables.clear()
        self.said.clear()

    def _set(self, text: str) -> None:
        pairs = (pair.partition("=") for pair in text.split())
        self.variables |= {name: self.moved(value) for name, _, value in pairs}

    def _here(self, path: str) -> Path:
        return Path(self.moved(path)) if path.startswith("/") else self._place / path

    def _copy(self, words: list[str]) -> None:
        source = self.context
        if words[0].startswith("--from="):
            source = self.stages[words.pop(0).removeprefix("--from=")]
        *names, to = words
        target = self._here(to)
        for name in names:
            given = source / name.lstrip("/")
            if given.is_dir():
                shutil.copytree(given, target, symlinks=True, dirs_exist_ok=True)
            else:
                into = target / given.name if to.endswith(("/", ".")) else target
                into.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(given, into)

    def _run(self, command: str) -> None:
        done = subprocess.run(
            ["/bin/sh", "-c", self.moved(command)],
            cwd=self._place,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=STEP_S_MAX,
            check=False,
        )
        assert done.returncode == 0, f"RUN {command}\n{done.stdout}{done.stderr}"
