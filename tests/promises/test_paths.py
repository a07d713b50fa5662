"""Keys, names and ids in paths: whatever the characters, a key is its key and nothing else.

Over every route of the document, on raw sockets, since clients tidy paths up.
"""

import functools
import json
from urllib.parse import quote

import pytest

from tests.support.builders import Call, ok, refused
from tests.support.document import routes
from tests.support.queues import Claim
from tests.support.sockets import Connection, head

PLACES = [(route, place) for route in routes() for place in route.places if place.where == "path"]
NAMED = pytest.mark.parametrize(
    ("route", "place"), [pytest.param(r, p, id=f"{r} {p}") for r, p in PLACES if p.kind != "id"]
)
WITH_ID = pytest.mark.parametrize(
    ("route", "place"), [pytest.param(r, p, id=f"{r} {p}") for r, p in PLACES if p.kind == "id"]
)
CHARS_MAX = {"key": 512, "name": 256}

TEXTS = [
    *(
        "a/b",
        "/",
        "//",
        "/a",
        "a/",
        "a/renew",
        "a/release",
        "%2F",
        "%252F",
        "a%2Fb",
        "%",
        "%zz",
        "%00",
        "%25",
    ),
    *(
        ".",
        "..",
        "...",
        "../..",
        "a/../b",
        "./a",
        "a/.",
        "..;/a",
        "?",
        "a?b=c",
        "#",
        "a#b",
        "&",
        "a=b",
        ";a=b",
    ),
    *(
        " ",
        "  a  ",
        "+",
        "a+b",
        "\t",
        "\r\n",
        "a\nb",
        "\x01",
        "\x7f",
        '"',
        "'",
        "\\",
        "<a>",
        "{key}",
        "{}",
        "|",
    ),
    *("é", "e\u0301", "\u212b", "\u00c5", "\ufb01", "fi", "ß", "ẞ", "I", "ı", "İ", "\u03c9", "\u2126"),
    *("\U0001f600", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\u202eabc", "\u200b", "\ufeff", "\uffff"),
    *(
        "\U0010ffff",
        "\u2028",
        "\u0000x"[1:],
        "null",
        "true",
        "0",
        "-1",
        "by-name",
        "batch",
        "admit",
        "acquire",
    ),
    *("' OR 1=1 --", "$1", "%s", "{0}", "${jndi:x}", "../../etc/passwd", "CON", "a" * 255, "0" * 64),
]
NO_TEXTS = {
    "%00": "NUL",
    "a%00b": "NUL",
    "%": "%25",
    "%4": "%25",
    "a%": "%25",
    "%zz": "%25",
    "%u0041": "%25",
    "%%41": "%25",
    "%FF": "UTF-8",
    "%C3": "UTF-8",
    "%A9": "UTF-8",
    "%C0%AF": "UTF-8",
    "%C0%80": "UTF-8",
    "%E0%80%AF": "UTF-8",
    "%ED%A0%80": "UTF-8",
    "%ED%A0%BD%ED%B8%80": "UTF-8",
    "%F4%90%80%80": "UTF-8",
    "%F8%88%80%80%80": "UTF-8",
}


@pytest.fixture(scope="module")
def calls(residents):
    """A call of each route, made at its first mention. Other names in its place may make other things."""
    return functools.cache(residents.call)


@pytest.fixture(scope="module")
def line(server, residents):
    """Send a call of the residents on a connection of one's own, its path as it is. Returns: the answer."""

    def send(route, made):
        method, path, content = made
        key = residents.rights(route)["Authorization"]
        framing = [] if content is None else [f"Content-Length: {len(content)}"]
        data = head(f"{method} {path} HTTP/1.1", f"Authorization: {key}", "Connection: close", *framing)
        with Connection(server.port) as connection:
            return connection.send(data + (content or b"")).answer()

    return send


def spellings(text):
    """The ways to write it in a path: as little encoded as may be, as usual, in small letters, all of it."""
    usual = quote(text, safe="")
    little = quote(text, safe="!$&'()*+,;=:@.~-_")
    whole = "".join(f"%{byte:02X}" for byte in text.encode())
    return {usual, little, usual.lower() if text == text.lower() else usual, whole}


@NAMED
@pytest.mark.parametrize("text", TEXTS, ids=ascii)
def test_a_key_or_name_of_any_characters_is_that_key_or_name(line, calls, route, place, text):
    for spelling in spellings(text):
        response = line(route, route.with_raw(calls(route), place, spelling))
        answer = response.json()
        if response.is_success:
            assert answer[place.name] == text
        else:
            refused(response, "STALE_CLAIM")  # a token is of its own key


@NAMED
def test_what_is_no_text_is_refused_by_the_name_of_its_place(line, calls, route, place):
    for text, says in NO_TEXTS.items():
        response = line(route, route.with_raw(calls(route), place, text))
        message = refused(response, "VALIDATION_FAILED")
        assert f"the {place.name} in the path" in message, text
        assert says in message, text


@NAMED
def test_a_path_is_as_long_as_its_key_may_be_and_no_longer(line, calls, route, place):
    longest = CHARS_MAX[place.name]
    for character in ("a", "é", "\U0001f600"):
        response = line(route, route.with_value(calls(route), place, character * longest))
        assert response.is_success or refused(response, "STALE_CLAIM")
        longer = line(route, route.with_value(calls(route), place, character * (longest + 1)))
        assert str(longest) in refused(longer, "VALIDATION_FAILED")
    endless = line(route, route.with_value(calls(route), place, "a" * 70_000))
    assert "65536 bytes" in refused(endless, "VALIDATION_FAILED")


@NAMED
def test_an_unencoded_mark_ends_the_path_and_is_never_lost(line, calls, route, place):
    """`a#b` sent as it is would be the key `a`."""
    for text in ("a#b", "#"):
        response = line(route, route.with_raw(calls(route), place, text))
        assert "%23" in refused(response, "VALIDATION_FAILED"), text
    for text in ("a b", "é", "a\tb", "a\x7fb"):
        response = line(route, route.with_raw(calls(route), place, text))
        assert refused(response, "VALIDATION_FAILED"), text
    for text in ("a/b", "", "a/", "/", "a?b=c", "?"):
        response = line(route, route.with_raw(calls(route), place, text))
        assert response.status_code in {400, 404, 405}, text


IDS = [
    *(
        "%2F",
        "a%2Fb",
        "%252F",
        "..",
        ".",
        "%2E%2E",
        "%2e%2e%2f",
        "%20",
        "+",
        "%C3%A9",
        "e%CC%81",
        "%F0%9F%98%80",
    ),
    *(
        "%00",
        "%FF",
        "%",
        "%zz",
        "%ED%A0%80",
        "null",
        "0",
        "-1",
        "*",
        "by-name",
        "a" * 5_000,
        "%27%20OR%201=1",
    ),
]


@WITH_ID
def test_what_is_no_id_is_not_found(line, calls, route, place):
    for text in IDS:
        refused(line(route, route.with_raw(calls(route), place, text)), "NOT_FOUND")
    for text in ("", "a/b", "//"):
        assert line(route, route.with_raw(calls(route), place, text)).status_code in {404, 405}, text


@pytest.mark.parametrize(
    "name", ["..", ".", "%2F", "%", "%00", "%FF", "a%2Fb", "%20", "%C3%A9", "x" * 65, "*", ""]
)
def test_what_is_no_space_is_one_that_is_not_covered(server, residents, name):
    for method, path in (("GET", "/scopes"), ("POST", "/scopes"), ("GET", "/nowhere"), ("PUT", "/runs/x")):
        data = head(
            f"{method} /v1/spaces/{name}{path} HTTP/1.1",
            f"Authorization: Bearer {residents.space.key}",
            "Connection: close",
        )
        with Connection(server.port) as connection:
            refused(connection.send(data).answer(), "FORBIDDEN")


def test_texts_that_look_alike_are_different_keys(api):
    """Composed and decomposed, wide and narrow, large and small: compared byte for byte."""
    alike = [
        "é",
        "e\u0301",
        "É",
        "\u212b",
        "\u00c5",
        "A\u030a",
        "\ufb01",
        "fi",
        "ß",
        "ss",
        "K",
        "\u212a",
        "k",
        "k ",
    ]
    root = ok(api.post("/scopes"), 201)["id"]
    for text in alike:
        made = ok(Claim(root, text).acquire(holder=json.dumps(text)).send(api), 201)
        assert made["key"] == text
        assert ok(Claim(root, text).view().send(api))["holder"] == json.dumps(text)
        run = ok(Call("PUT", f"/runs/{quote(text, safe='')}", {}).send(api))
        assert run["name"] == text
    runs = ok(api.get("/scopes", params={"limit": 500}))["scopes"]
    assert {r["name"] for r in runs} == {None, *alike}
