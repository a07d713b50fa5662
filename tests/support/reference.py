"""The reference page of the object graph as data: names, parameters, defaults, types; none of its prose.

`python -m tests.support.reference PAGE` compares tests/conformance/python-sdk.json with all code of the page;
with `write` after it the file is made anew. The page's code has come down without its line ends.
"""

import ast
import json
import re
import sys
from pathlib import Path
from typing import Any

from tests.support import sources

DATA = sources.ROOT / "tests/conformance/python-sdk.json"
_BLOCK = re.compile(r"```python\s(.*?)\s```", re.DOTALL)
_TYPE = r"(?:str|int|float|bool|list|dict|object|datetime|asyncio\.\w+|[A-Z][a-z]\w*)\b"
_DEFINITION = r"(?:async )?def \w+\(|@property|class \w+"
# A comment ends where the next line of code must have begun.
_COMMENT = re.compile(
    rf"\s*# .*?(?=\s(?:{_DEFINITION}|\) ->|\*, |[a-z_]+: {_TYPE}|[a-z_]+=None)|\s?$)", re.DOTALL
)


def read(page: str) -> dict[str, Any]:
    """All that the page's code declares: {classes: {name: {bases, attributes, methods}}, functions}."""
    classes: dict[str, Any] = {}
    functions: dict[str, Any] = {}
    for block in _BLOCK.findall(page):
        if not re.match(r"(?:async )?def |class ", block):
            continue  # an example
        for node in ast.parse(_in_lines(_COMMENT.sub("", block))).body:
            if isinstance(node, ast.ClassDef):
                classes[node.name] = _class(node)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                functions[node.name] = _function(node)
    return {"classes": classes, "functions": functions}


def _in_lines(code: str) -> str:
    """Code with its line ends and indents back; ast then refuses whatever is no code."""
    lines = []
    indent = ""
    for part in filter(None, re.split(rf"\s*(?=(?<!async )(?:{_DEFINITION}))", code)):
        is_class = part.startswith("class ")
        if is_class or not re.match(r"(?:async )?def \w+\(\s*self\b|@property", part):
            indent = ""
        head, end, attributes = part.partition(":" if is_class else ": ...")
        lines.append(indent + head + end)
        if is_class:
            indent = "    "
        lines += [indent + each for each in re.split(r"\s(?=[a-z_]+: )", attributes.strip()) if each]
    return "\n".join(lines)


def _class(node: ast.ClassDef) -> dict[str, Any]:
    methods = [each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {
        "bases": [ast.unparse(base) for base in node.bases],
        "attributes": {
            ast.unparse(each.target): ast.unparse(each.annotation)
            for each in node.body
            if isinstance(each, ast.AnnAssign)
        },
        "methods": {each.name: _function(each) for each in methods},
    }


def _function(node: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, Any]:
    """kind: plain, async or property; parameters: as written, one by one, with `*` among them."""
    kind = "async" if isinstance(node, ast.AsyncFunctionDef) else "plain"
    return {
        "kind": "property" if node.decorator_list else kind,
        "parameters": _parameters(node.args),
        "returns": None if node.returns is None else ast.unparse(node.returns),
    }


def _parameters(given: ast.arguments) -> list[str]:
    assert not given.posonlyargs
    bare = [None] * (len(given.args) - len(given.defaults))
    told = [_parameter(a, d) for a, d in zip(given.args, bare + list(given.defaults), strict=True)]
    if given.vararg is not None:
        told.append("*" + given.vararg.arg)
    elif given.kwonlyargs:
        told.append("*")
    told += [_parameter(a, d) for a, d in zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    if given.kwarg is not None:
        told.append("**" + given.kwarg.arg)
    return told


def _parameter(given: ast.arg, default: ast.expr | None) -> str:
    return ast.unparse(given) + ("" if default is None else f" = {ast.unparse(default)}")


def main(page: str, *how: str) -> int:
    """Compare, or write. Returns the exit code: 0 when page and data say the same."""
    found = Path(page).read_text()
    told = read(found)
    counted = [*told["functions"], *(name for each in told["classes"].values() for name in each["methods"])]
    code = " ".join(block for block in _BLOCK.findall(found) if re.match(r"(?:async )?def |class ", block))
    assert len(re.findall(r"\bdef ", code)) == len(counted), "a signature was overlooked"
    assert len(re.findall(r"\bclass \w+", code)) == len(told["classes"]), "a class was overlooked"
    text = json.dumps(told, indent=1) + "\n"
    if how == ("write",):
        DATA.write_text(text)
    return 0 if DATA.read_text() == text else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
