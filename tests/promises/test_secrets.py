"""A key or token that is put in the wrong place is not sent back by the refusal, nor told by the log."""

import pytest

from tests.promises.rows_messages import box
from tests.support import races
from tests.support.builders import ok
from tests.support.document import routes
from tests.support.queues import sent
from tests.support.spaces import ADMIN_TOKEN

PLACES = [pytest.param(r, p, id=f"{r} {p}") for r in routes() for p in r.places]


def secrets_of(everyone):
    """The key of the caller, the operator's token, and the token of a lease that is held."""
    it = box(everyone.api)
    sent(everyone.api, it)
    token = ok(it.recv(lease_s=3600).send(everyone.api))["token"]
    return [everyone.space.key, ADMIN_TOKEN, token]


@pytest.fixture
def secrets(everyone):
    return secrets_of(everyone)


def untold(response, secrets):
    """Whether a refusal says nothing of them, its headers neither; a success may show what it is about."""
    said = response.text + str(response.headers)
    return response.is_success or not [secret for secret in secrets if secret in said]


def is_free(place):
    """Whether the caller may call something by any text there: a refusal names what it is about."""
    return place.kind == "text" and place.name not in {"token", "cursor"}


@pytest.mark.parametrize(("route", "place"), PLACES)
def test_a_secret_in_a_wrong_place_is_not_sent_back(everyone, secrets, route, place):
    call = everyone.call(route)
    for secret in secrets:
        if not is_free(place):
            assert untold(everyone.send_with(route, call, place, secret), secrets)
        if place.where == "body":
            for text in (
                f'[["{secret}"]]',
                f'{{"x":"{secret}"}}',
                f'"{secret}',
                secret,
                f'"\\ud800{secret}"',
            ):
                assert untold(everyone.send_raw(route, call, place, text), secrets), text


@pytest.mark.parametrize("route", routes(), ids=str)
def test_a_secret_in_headers_body_or_query_is_not_sent_back(everyone, secrets, route):
    call = everyone.call(route)
    rights = everyone.rights(route)
    for secret in secrets:
        for headers in (
            {"Authorization": f"Bearer {secret}x"},
            {"Authorization": f"Basic {secret}"},
            {"Authorization": secret},
            rights | {"Content-Encoding": secret},
            rights | {"Content-Type": secret},
            rights | {"Idempotency-Key": secret * 20},
            rights | {"X-Request-Id": secret},
            rights | {"Accept": secret, "User-Agent": secret, "Referer": secret, "Cookie": secret},
        ):
            response = everyone.request(call.method, call.path, content=b"nonsense", headers=headers)
            assert untold(response, secrets), headers.keys()
            assert secret not in str(response.headers)
        for content in (secret.encode(), f'"{secret}"'.encode(), f'["{secret}"]'.encode()):
            response = everyone.request(call.method, call.path, content=content, headers=rights)
            assert untold(response, secrets), content
        joint = "&" if "?" in call.path else "?"
        for query in (f"token={secret}", f"key={secret}&key={secret}", f"x=%zz{secret}"):
            response = everyone.request(call.method, call.path + joint + query, headers=rights)
            assert untold(response, secrets), query


def test_the_log_has_no_secret(server, everyone, secrets):
    for path in (f"/v1/spaces/{secrets[0]}/scopes", f"/{secrets[2]}", f"/v1/admin/{secrets[1]}"):
        everyone.door.get(path, headers={"Authorization": f"Bearer {secrets[1]}"})
    before = server.log().count("GET unknown")
    everyone.door.get("/nowhere")
    races.until_blocking(lambda: server.log().count("GET unknown") > before, what="the log of the last call")
    log = server.log()
    assert [secret for secret in secrets if secret in log] == []
