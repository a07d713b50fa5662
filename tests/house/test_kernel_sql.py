"""The rules of the house for the SQL of the kernel."""

import ast
import re

import pytest

from runstate_server.foundation.errors import Code
from tests.support import sources
from tests.support.sources import name, nothing

FUNCTION_LINES_MAX = 80
SEAM = {"call", "rows", "step", "Sweep"}
INTERNAL_WORDS = {"AGAIN"}  # told from kernel to server, never to a client
WRITES = r"(?i)\b(?:INSERT\s+INTO|UPDATE|DELETE\s+FROM|TRUNCATE)\s+runstate\."

# Each: a pattern over the text of a kernel file without comments, and why it is banned.
BANNED = {
    r"%ROWTYPE": "breaks in open sessions when the table changes",
    r"\bSELECT\s+(?:\w+\.)?\*": "columns are named: a new one must not change a function",
    r"\bINSERT\s+INTO\s+[\w.]+(?:\s+AS\s+\w+)?\s+(?:VALUES|SELECT|WITH)\b": "an INSERT names its columns",
    r"\bRETURNS\s+SETOF\s+runstate\.": "a function returns its own columns, not a table's",
    r"\bSECURITY\s+DEFINER\b": "functions have their caller's rights",
    r"\bjsonb\b": "user JSON is text as it came; jsonb amplifies and reorders",
    r"\bCREATE\s+OR\s+REPLACE\b": "a schema of functions is installed once and never changed",
    r"\bSET\s+search_path\b": "names are qualified; the attribute stops inlining",
    r"\bserial\b|\bnextval\b": "no sequence counts what a restore could hand out again",
}

# What may stand before a parenthesis without being a function.
KEYWORDS = """
all and any array as between by case cast check coalesce conflict distinct else elsif except exists extract
filter from greatest having if in interval into is join key lateral least limit materialized not null nullif
numeric on only or order over overlay partition position raise references return returning returns row rows
select set substring then timestamptz trim union using values varchar when where while with
"""


def test_functions_keep_to_their_size():
    found = list(sources.functions())
    assert found
    nothing(f"{f.place}: {f.lines} lines" for f in found if f.lines > FUNCTION_LINES_MAX)


@pytest.mark.parametrize("pattern", BANNED)
def test_what_breaks_later_is_avoided(pattern):
    nothing(
        f"{name(path)}: {found[0]!r}: {BANNED[pattern]}"
        for path in sources.kernel_files()
        for found in re.finditer(f"(?i){pattern}", sources.without_comments(path.read_text()))
    )


def test_only_the_clock_reads_the_time():
    clocks = (
        r"(?i)\b(?:now|clock_timestamp|transaction_timestamp|statement_timestamp|timeofday)\s*\("
        r"|\b(?:current_timestamp|current_date|current_time|localtimestamp|localtime)\b|'(?:now|today)'(?!,)"
    )  # before a comma it is the name of a member of an answer
    nothing(
        f"{name(path)}: {found[0]}"
        for path in sources.files(".sql", ".py")
        if path.is_relative_to(sources.ROOT / "migrations") or path.is_relative_to(sources.SERVER)
        if not path.name.startswith("clock")
        for found in re.finditer(clocks, "\n".join(sql_of(path)))
    )


def sql_of(path):
    """The SQL of a file: a .sql without comments, or the strings of Python that speak SQL."""
    if path.suffix == ".sql":
        yield sources.without_comments(path.read_text())
        return
    speaks = re.compile(r"\s*(?:SELECT|INSERT|UPDATE|DELETE|WITH|CREATE|ALTER)\b")
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and speaks.match(node.value):
            yield node.value


def test_a_function_that_reads_tables_is_volatile():
    nothing(
        f.place
        for f in sources.functions()
        if re.search(r"(?i)\b(?:STABLE|IMMUTABLE)\b", f.text) and re.search(r"(?i)\brunstate\.", f.text)
    )


def test_the_clock_stands_in_no_condition():
    """A VOLATILE call cannot be an index condition: the clock is read into a variable first."""
    nothing(
        f.place
        for f in sources.functions()
        if re.search(r"(?is)\b(?:WHERE|ON)\b[^;]*kernel_now\(\)", f.text)
        and not f.name.endswith("kernel_now")
    )


def test_a_function_called_by_the_server_that_writes_enters_the_kernel_first():
    functions = {f.name: f for f in sources.functions()}
    writers = {f.name for f in functions.values() if re.search(WRITES, f.text)}
    while more := {f.name for f in functions.values() if writers & called_by(f)} - writers:
        writers |= more
    enters = re.compile(r"(?i)\bBEGIN\s+PERFORM\s+kernel\.kernel_enter\(\)")
    asked = {f"kernel.{word}" for word in called_by_the_server()}
    assert writers & asked
    nothing(functions[f].place for f in sorted(writers & asked) if not enters.search(functions[f].text))


def called_by(function):
    return set(re.findall(r"kernel\.\w+(?=\s*\()", body(function)))


def body(function):
    return function.text[function.text.index("$") :]


def called_by_the_server():
    """The names of functions that Python hands to the seam, always as first argument."""
    for path in sources.files(".py"):
        calls = ast.walk(ast.parse(path.read_text())) if path.is_relative_to(sources.SERVER) else ()
        for node in calls:
            seam = isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in SEAM
            if seam and node.args and isinstance(node.args[0], ast.Constant):
                yield node.args[0].value


def test_the_server_calls_functions_that_exist():
    known = {f.name for f in sources.functions()}
    nothing(word for word in called_by_the_server() if f"kernel.{word}" not in known)


def test_capital_words_are_error_codes_or_states():
    """A code that the error table lacks would leave as a crash; a state no plate names is a typing error."""
    told = [room / file for room in sources.rooms() for file in ("__init__.py", "schemas.py")]
    named = "".join(path.read_text() for path in told if path.exists())
    known = (
        {code.value for code in Code} | INTERNAL_WORDS | set(re.findall(r"\b[A-Z]{4,}(?:_[A-Z]+)*\b", named))
    )
    nothing(
        f"{name(path)}: {word}"
        for path in sources.kernel_files()
        for word in re.findall(r"'([A-Z]{4,}(?:_[A-Z]+)*)'", sources.without_comments(path.read_text()))
        if word not in known
    )


def test_every_call_is_qualified():
    """Whoever can put a schema before pg_catalog must not be able to replace a function."""
    call = re.compile(r"(?<![\w.'%])(?<!\) )(?<!\)\n)([a-z_][a-z0-9_]*)\s*\(", re.IGNORECASE)
    nothing(
        f"{f.place} calls {found[1]} without its schema"
        for f in sources.functions()
        for found in call.finditer(re.sub(r"'(?:[^']|'')*'", "''", body(f)))
        if found[1].lower() not in KEYWORDS.split() and not names_columns(f.text, found[1])
    )


def names_columns(text, word):
    """A list of columns follows the word: `WITH word (...)`, `AS word(...)`, `INTO word (...)` and so on."""
    return re.search(rf"(?i)\b(?:WITH|AS|INTO|ORDINALITY)\s+{word}\s*\(", text) is not None


def test_a_room_writes_its_own_tables_only():
    for room in sources.rooms():
        plate = ast.get_docstring(ast.parse((room / "__init__.py").read_text()))
        owned = set(re.findall(r"\w+", re.search(r"\bTables?:([^.]*)\.", plate)[1]))
        for path in room.rglob("*.sql"):
            written = set(re.findall(WRITES + r"(\w+)", sources.without_comments(path.read_text())))
            assert written <= owned, f"{name(path)} writes {sorted(written - owned)}, not on its plate"


def test_a_room_calls_its_own_functions_those_of_lower_ranks_and_the_floor_s():
    ranks = [room.name for room in sources.rooms_by_rank()]
    home = {f.name: f.file.parent.name for f in sources.functions()}
    nothing(
        f"{f.place} calls {other}, of the higher room {home[other]}"
        for f in sources.functions()
        for other in sorted(called_by(f) & set(home))
        if home[other] in ranks
        and (home[f.name] not in ranks or ranks.index(home[other]) < ranks.index(home[f.name]))
    )
