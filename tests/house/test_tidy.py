"""The rules of the house that a machine can read off the source."""

import ast
import re
from pathlib import Path

from tests.support import sources
from tests.support.sources import nothing

PYTHON_FUNCTION_LINES_MAX = 50
FILE_LINES_MAX = 400
LINE_CHARS_MAX = 110
PRAGMA = re.compile(r"\s*# (?:noqa|type: ignore)\b.*$")  # as ruff counts
GENERATED = {"migrations/schema.sql"}
NAMELESS = re.compile(r"(?:util|helper|manager)s?|common|base|misc", re.IGNORECASE)
ROOM_FILES = {"__init__.py", "routes.py", "schemas.py", "kernel.py", "kernel.sql", "reads.py"}
CLOCKS_OF_PYTHON = {
    ("time", "sleep"),
    ("time", "time"),
    ("time", "time_ns"),
    ("datetime", "now"),
    ("datetime", "utcnow"),
    ("datetime", "today"),
    ("date", "today"),
}

name = sources.name


def trees(folder="."):
    for path in sources.files(".py"):
        if path.is_relative_to(sources.ROOT / folder):
            yield path, ast.parse(path.read_text())


def test_files_and_lines_keep_to_their_size():
    found = []
    for path in sources.files(".py", ".sql"):
        if name(path) in GENERATED:
            continue
        lines = path.read_text().splitlines()
        if len(lines) > FILE_LINES_MAX:
            found.append(f"{name(path)}: {len(lines)} lines")
        widths = [len(PRAGMA.sub("", line)) for line in lines]
        found += [f"{name(path)}:{i}: {n} characters" for i, n in enumerate(widths, 1) if n > LINE_CHARS_MAX]
    nothing(found)


def test_python_functions_keep_to_their_size():
    nothing(
        f"{name(path)}:{node.lineno} {node.name}: {size} lines"
        for path, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (size := node.end_lineno - node.lineno + 1) > PYTHON_FUNCTION_LINES_MAX
    )


def test_no_module_is_named_after_nothing():
    nothing(
        name(path)
        for path in sources.files(".py", ".sql")
        if any(NAMELESS.fullmatch(part.strip("_")) for part in Path(name(path)).with_suffix("").parts)
    )


def test_every_room_has_its_plate_and_the_same_files():
    assert sources.rooms()
    for room in sources.rooms():
        tree = ast.parse((room / "__init__.py").read_text())
        plate = ast.get_docstring(tree)
        assert plate, f"{room.name} has no door plate"
        assert len(tree.body) == 1, f"{room.name}: a door plate is a docstring only"
        assert plate.lower().startswith(room.name.replace("_", " ")), (
            f"{room.name}: a plate begins with its word"
        )
        assert re.search(r"\bTables?:", plate), f"{room.name}: a plate names the tables"
        assert re.search(r"\bLocks?:", plate), f"{room.name}: a plate names the locks, in order"
        found = {p.name for p in room.iterdir() if p.suffix in {".py", ".sql"}}
        found = {re.sub(r"^kernel_[a-z]+\.sql$", "kernel.sql", n) for n in found}
        assert found <= ROOM_FILES, f"{room.name} holds {sorted(found - ROOM_FILES)}"


def test_every_module_of_the_server_and_the_sdk_says_what_it_is():
    nothing(
        name(path)
        for folder in ("server", "sdk/runstate")
        for path, tree in trees(folder)
        if not ast.get_docstring(tree)
    )


def test_no_python_clock_decides_anything_in_the_server():
    """The database's clock does. The driver of the embedded database may wait for processes, and ids begin
    with the time only to lie close together."""
    nothing(
        f"{name(path)}:{node.lineno} {ast.unparse(node.func)}"
        for path, tree in trees("server")
        if not path.is_relative_to(sources.SERVER / "embedded") and path.name != "ids.py"
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and (ast.unparse(node.func.value).split(".")[-1], node.func.attr) in CLOCKS_OF_PYTHON
    )


def test_only_the_transport_of_the_sdk_knows_httpx():
    nothing(
        name(path)
        for path, tree in trees("sdk/runstate")
        if path.name != "_transport.py" and "httpx" in imported(tree)
    )


def imported(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.split(".")[0]


def test_no_file_names_this_machine_or_a_package_registry():
    # In pieces, so that this file does not find itself.
    hosts = ["pypi" + r"\.org", "python" + r"hosted\.org", "npm" + r"js\.(?:org|com)", "index" + r"-url\b"]
    places = r"(?<![\w.:/~$}-])/(?:root|work|home|Users|opt)/\w"
    pattern = re.compile("|".join([*hosts, places]))
    nothing(
        f"{name(path)}: {found[0]}"
        for path in sources.files()
        if path.name != "Makefile"  # `--no-emit-…` keeps such lines out of the pins
        for found in pattern.finditer(readable(path))
    )


def readable(path):
    try:
        return path.read_text()
    except UnicodeDecodeError:
        return ""


def test_our_sdk_is_never_asked_of_a_registry():
    """Its name belongs to a foreign package there: it is installed from ./sdk alone."""
    asked = re.compile(r"(?m)^\s*\"?runstate-sdk\b.*[=<>~\"\]]|pip install[^\n]*\s['\"]?runstate-sdk\b")
    nothing(
        f"{name(path)}: {found[0]}"
        for path in sources.files()
        if path.name != Path(__file__).name
        for found in asked.finditer(readable(path))
    )


def test_no_test_is_skipped():
    skips = re.compile(r"\bpytest\.skip|\bmark\.skip|\bimportorskip|\bmark\.xfail|\bunittest\.skip")
    nothing(
        name(path) for path, _ in trees("tests") if path != Path(__file__) and skips.search(path.read_text())
    )


def test_no_test_mocks_our_own_code():
    nothing(
        f"{name(path)} imports {module}"
        for path, tree in trees("tests")
        for module in imported(tree)
        if module in {"mock", "pytest_mock"} or (module == "unittest" and "mock" in path.read_text())
    )
