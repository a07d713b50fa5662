"""The pages of the documentation, taken apart, and their lines run as a person's shell would run them."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support import sources
from tests.support.processes import environment

SCRIPT_S_MAX = 160
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_PARTING = "-- end of block --"
# What differs from run to run. Ids, tokens and keys keep their order of appearance: the same one is the same
# thing wherever it stands.
_IDS = re.compile(r"\brs_[0-9a-f]{46}\b|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b[0-9a-f]{32}\b")
_TIMES = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z|(?<=-)[0-9a-f]{13}\b")  # also in an event's id
_CURSORS = re.compile(r"\bW[yz][\w-]{8,}")
_WIDTH = 100


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, text, where it stands, the heading above and the paragraph before it."""

    language: str
    text: str
    start: int
    end: int
    heading: str
    before: str


def page(name: str) -> str:
    """The text of a page, by its path from the root of the project."""
    return (sources.ROOT / name).read_text()


def blocks(text: str, after: str = "") -> list[Block]:
    """The fenced blocks of a page below a heading or sentence."""
    assert after in text, after
    begin = text.index(after) + len(after)
    headings = [(h.start(), h[1]) for h in _HEADING.finditer(_without_code(text))]
    found = []
    for fence in _FENCE.finditer(text, begin):
        above = [words for at, words in headings if at < fence.start()]
        before = " ".join(text[: fence.start()].rstrip("\n").rpartition("\n\n")[2].split())
        found.append(Block(fence[1], fence[2], *fence.span(), above[-1] if above else "", before))
    return found


def _without_code(text: str) -> str:
    """The page with its blocks blanked out, every character in its place: `# …` in them is no heading."""
    return _FENCE.sub(lambda fence: re.sub(r"[^\n]", " ", fence[0]), text)


def texts(text: str, language: str, after: str = "") -> list[str]:
    """The texts of the blocks of that language below a heading or sentence."""
    return [block.text for block in blocks(text, after) if block.language == language]


def save_programs(found: list[Block], folder: Path) -> list[str]:
    """Every block after "Save this as `name`" goes into a file of that name. Returns: the names."""
    names = []
    for block in found:
        if saved := re.search(r"[Ss]ave this as `([\w.]+)`", block.before):
            (folder / saved[1]).write_text(block.text)
            names.append(saved[1])
    return names


def shell(script: str, folder: Path, variables: Mapping[str, str]) -> str:
    """Run the lines as a person's shell would, up to the first that fails; returns what they print."""
    done = subprocess.run(
        ["sh", "-eu", "-c", script],
        cwd=folder,
        env=environment(PYTHONUNBUFFERED="", **variables),  # else a line and its end are two writes
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SCRIPT_S_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr, done.stdout + done.stderr
    return done.stdout


def shown(found: list[Block]) -> list[tuple[Block, Block | None]]:
    """The sh blocks of a page, each with the block of output directly below it, if there is one."""
    pairs: list[tuple[Block, Block | None]] = []
    for block in found:
        if block.language == "sh":
            pairs.append((block, None))
        elif block.language in ("text", "json") and pairs and block.before.endswith("```"):
            pairs[-1] = (pairs[-1][0], block)
    return pairs


def run_blocks(scripts: list[str], folder: Path, variables: Mapping[str, str]) -> list[str]:
    """Run blocks one after another in one shell, whose variables and functions last. Returns: what each
    printed."""
    script = "".join(f"{text}\necho '{_PARTING}'\n" for text in scripts)
    printed = shell(script, folder, variables).split(_PARTING + "\n")
    assert len(printed) == len(scripts) + 1
    return printed[:-1]


def leveled(outputs: list[str]) -> list[str]:
    """The outputs with times and cursors out of sight, and ids and tokens numbered as they appear."""
    numbers: dict[str, str] = {}

    def number(found: re.Match[str]) -> str:
        return numbers.setdefault(found[0], f"id-{len(numbers) + 1}")

    return [_CURSORS.sub("cursor", _TIMES.sub("time", _IDS.sub(number, text))) for text in outputs]


def same(output: str) -> object:
    """What two outputs are compared by: JSON by its values, however it is laid out, other text as it is."""
    try:
        return list(_values(output))
    except ValueError:
        return output


def _values(output: str) -> Iterator[object]:
    decoder, at = json.JSONDecoder(), 0
    while rest := output[at:].lstrip():
        at = len(output) - len(rest)
        value, at = decoder.raw_decode(output, at)
        yield value


def laid_out(output: str) -> str:
    """JSON, one value a line, over as many lines of the page's width as each needs; other text as it is."""
    try:
        found = list(_values(output))
    except ValueError:
        return output
    lines = []
    for value in found:
        pieces = json.dumps(value, ensure_ascii=False, separators=(",\0", ": ")).split("\0")
        line = pieces[0]
        for piece in pieces[1:]:
            if len(line) + 1 + len(piece) > _WIDTH:
                lines.append(line)
                line = " " + piece
            else:
                line += " " + piece
        lines.append(line)
    return "\n".join(lines) + "\n"


def check_shown(name: str, pairs: list[tuple[Block, Block | None]], printed: list[str]) -> None:
    """Each block printed what the page shows below it; with SNAPSHOT=write the page is made to show it."""
    shown = leveled(["" if answer is None else answer.text for _, answer in pairs])
    wrong = [
        block.heading
        for (block, _), real, promised in zip(pairs, leveled(printed), shown, strict=True)
        if same(real) != same(promised)
    ]
    text = page(name)
    if wrong and os.environ.get("SNAPSHOT") == "write":
        for (_, answer), output in reversed(list(zip(pairs, printed, strict=True))):
            if answer is not None:  # from the end, so that places before it stay where they are
                fence = f"```{answer.language}\n{laid_out(output)}```"
                text = text[: answer.start] + fence + text[answer.end :]
        (sources.ROOT / name).write_text(text)
        return
    assert not wrong, f"{name} shows something else below {wrong}; see the head of this test's file"


def rows(text: str, after: str) -> list[list[str]]:
    """The cells of the first table below a heading or sentence, its head left out."""
    assert after in text, after
    table = re.search(r"^\|.*?(?=^[^|]|\Z)", text.split(after, 1)[1], re.DOTALL | re.MULTILINE)
    assert table, after
    lines = [re.split(r"(?<!\\)\|", line)[1:-1] for line in table[0].strip().splitlines()]
    return [[cell.strip() for cell in line] for line in lines[2:]]
