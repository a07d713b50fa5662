"""docs/configuration.md, errors.md and other-languages.md say what the code says, and their lines work.

After a change that is meant: SNAPSHOT=write .venv/bin/python -m pytest tests/ways_in/test_reference.py
"""

import dataclasses
import inspect
import json
import os
import re
import shutil
import subprocess
from shlex import quote

import pytest

import runstate
from runstate_server.foundation.errors import TABLE, Code
from runstate_server.settings import describe, load
from runstate_server.web.caller import Permission
from tests.support import pages, sources
from tests.support.processes import RUNSTATE

CONFIGURATION = "docs/configuration.md"
ERRORS = "docs/errors.md"
LANGUAGES = "docs/other-languages.md"
CASES = json.loads((sources.ROOT / "tests/conformance/errors.json").read_text())["cases"]
SDK_VARIABLES = ("RUNSTATE_API_KEY", "RUNSTATE_SPACE_ID", "RUNSTATE_BASE_URL", "RUNSTATE_RUN")
API = pages.texts(pages.page("docs/http-api.md"), "sh")[0]  # space, call, field


def check(name, text, promised):
    """The page has this text; or it is given to it."""
    if os.environ.get("SNAPSHOT") == "write":
        (sources.ROOT / name).write_text(promised)
        return
    assert text == promised, f"{name} is out of date; see the head of this file"


def walk(name, pairs, folder, variables, before=""):
    """The blocks print what the page shows below them."""
    printed = pages.run_blocks([before, *(sh.text for sh, _ in pairs)], folder, variables)[1:]
    pages.check_shown(name, pairs, printed)


def cell(text):
    return f"`{text}`".replace("|", "\\|") if text else ""


# ------------------------------------------------------------------------------------ configuration.md


def test_every_setting_of_the_server_is_listed_with_its_default_bound_and_meaning(monkeypatch):
    for name in [name for name in os.environ if name.startswith("RUNSTATE_")]:
        monkeypatch.delenv(name)
    head = "| variable | default | bound | meaning |\n| --- | --- | --- | --- |\n"
    rows = "".join(
        f"| `{item.name}` | {cell(item.default)} | {cell(item.bound)} | {item.meaning} |\n"
        for item in describe(load())
    )
    text = pages.page(CONFIGURATION)
    before, after = text.split(head)
    check(CONFIGURATION, text, before + head + rows + re.sub(r"\A(?:\|[^\n]*\n)*", "", after))


def test_every_setting_of_the_sdk_is_listed_with_its_default():
    rows = pages.rows(pages.page(CONFIGURATION), "## The SDK")
    assert [row[1].strip("`") for row in rows] == list(inspect.signature(runstate.resolve_config).parameters)
    fields = {field.name: field.default for field in dataclasses.fields(runstate.Config)}
    for _, argument, default, _ in rows:
        expected = fields[argument.strip("`")]
        if expected is not dataclasses.MISSING:
            assert default == f"`{expected}`"
        else:
            assert default == "required" or argument == "`holder`"
    text = pages.page(CONFIGURATION)
    for argument in inspect.signature(runstate.configure).parameters:
        assert f"`{argument}`" in text


def test_every_variable_of_the_sdk_sets_the_argument_beside_it(monkeypatch):
    rows = pages.rows(pages.page(CONFIGURATION), "## The SDK")
    listed = {row[0].strip("`"): row[1].strip("`") for row in rows if row[0]}
    assert set(listed) <= set(SDK_VARIABLES)
    for name in listed:
        monkeypatch.setenv(name, f"http://{name.lower()}" if name.endswith("URL") else name.lower())
    config = runstate.resolve_config()
    assert {name: getattr(config, argument).removeprefix("http://") for name, argument in listed.items()} == {
        name: name.lower() for name in SDK_VARIABLES
    }


def test_every_permission_is_explained():
    rows = pages.rows(pages.page(CONFIGURATION), "## Permissions")
    assert [row[0] for row in rows] == [f"`{permission.value}`" for permission in Permission]


@pytest.mark.processes
def test_the_commands_for_spaces_and_keys_print_what_the_page_shows(fresh_database, tmp_path):
    pairs = pages.shown(pages.blocks(pages.page(CONFIGURATION), "## Spaces and keys"))
    assert len(pairs) == 2
    variables = {
        "RUNSTATE_DATABASE_URL": fresh_database,
        "RUNSTATE_TEST_CLOCK": "1",
        "PATH": f"{RUNSTATE.parent}:{os.environ['PATH']}",
    }
    walk(CONFIGURATION, pairs, tmp_path, variables)


# ------------------------------------------------------------------------------------------- errors.md


def test_every_code_is_listed_as_the_wire_the_server_and_the_sdk_have_it():
    known = {case["code"]: case for case in reversed(CASES)}  # the plain case of a code comes first
    del known["TOTALLY_NEW"]
    known |= {"INTERNAL": {"status": 500, "class": "RunstateError", "retryable": False}}
    rows = {row[0].strip("`"): row for row in pages.rows(pages.page(ERRORS), "## The codes")}
    assert rows.keys() == known.keys()
    assert rows.keys() >= set(Code)
    for code, (_, status, meaning, waiting, kind, advice) in rows.items():
        case = known[code]
        error = runstate.map_error(code, case["status"], "m")
        assert (status, kind) == (str(case["status"]), f"`{case['class']}`"), code
        assert type(error).__name__ == case["class"]
        assert waiting == ("yes" if case["retryable"] else "no") == ("yes" if error.retryable else "no"), code
        never = "known to clients, never sent by this server"
        assert meaning == (TABLE[Code(code)].meaning if code in set(Code) else never), code
        assert advice, code


def test_every_class_of_the_sdk_is_named_and_those_it_raises_by_itself_have_their_codes():
    text = pages.page(ERRORS)
    kinds = [
        kind
        for name in runstate.__all__
        if inspect.isclass(kind := getattr(runstate, name)) and issubclass(kind, runstate.RunstateError)
    ]
    assert len(kinds) > 12
    assert [kind.__name__ for kind in kinds if f"`{kind.__name__}`" not in text] == []
    rows = pages.rows(text, "## What the SDK raises by itself")
    for kind, code, _ in rows:
        assert f"`{getattr(runstate, kind.strip('`')).code}`" == code
    of_the_sdk_alone = {kind.code for kind in kinds} - {case["code"] for case in CASES} - {"ERROR"}
    assert {row[1].strip("`") for row in rows} >= of_the_sdk_alone


def test_a_call_sent_again_is_answered_as_the_page_shows(server, space, tmp_path):
    pairs = pages.shown(pages.blocks(pages.page(ERRORS), "## Sending a call again"))
    assert len(pairs) == 1
    quiet = API.replace("--fail-with-body ", "")  # the last call is refused, which is what it shows
    walk(ERRORS, pairs, tmp_path, space.environment(server.url), before=quiet)


# ---------------------------------------------------------------------------------- other-languages.md


VECTORS = json.loads((sources.ROOT / "tests/conformance/keys.json").read_text())["cases"]


def test_every_vector_of_keys_is_listed():
    head = "| name | arguments | key |\n| --- | --- | --- |\n"
    rows = "".join(
        f"| `{case['name']}` | `{in_ascii(case['canonical'])}` | `{case['key']}` |\n" for case in VECTORS
    )
    text = pages.page(LANGUAGES)
    before, after = text.split(head)
    check(LANGUAGES, text, before + head + rows + re.sub(r"\A(?:\|[^\n]*\n)*", "", after))


def in_ascii(text):
    return "".join(c if c.isascii() and c.isprintable() else json.dumps(c)[1:-1] for c in text)


def test_the_shell_s_key_is_that_of_every_vector(tmp_path):
    [function] = pages.texts(pages.page(LANGUAGES), "sh")
    asked = "".join(f"key_of {quote(case['name'])} {quote(case['canonical'])}\n" for case in VECTORS)
    [shown] = pages.texts(pages.page(LANGUAGES), "text")
    assert pages.shell(function + asked, tmp_path, {}) == shown + "".join(f"{c['key']}\n" for c in VECTORS)


def test_the_javascript_of_the_page_is_that_of_the_example():
    example = (sources.ROOT / "examples/raw_http_once.mjs").read_text()
    code = re.search(r"(?s)// --- the key of.*?\n(.*?)// ---\n", example)[1]
    text = pages.page(LANGUAGES)
    [block] = [b for b in pages.blocks(text) if b.language == "js"]
    check(LANGUAGES, text, text[: block.start] + f"```js\n{code}```" + text[block.end :])


@pytest.mark.parametrize("node", [pytest.param(p, id="node") for p in [shutil.which("node")] if p])
def test_javascript_s_key_is_that_of_every_vector(node):
    source = f"""
    import {{ keyOf }} from {json.dumps(str(sources.ROOT / "examples/raw_http_once.mjs"))};
    import {{ readFileSync }} from "node:fs";
    const cases = JSON.parse(readFileSync(process.argv[1], "utf-8")).cases;
    console.log(JSON.stringify(cases.map((each) => keyOf(each.name, each.args))));
    """
    vectors = sources.ROOT / "tests/conformance/keys.json"
    command = [node, "--input-type=module", "-e", source, str(vectors)]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    assert json.loads(said.stdout) == [case["key"] for case in VECTORS]
