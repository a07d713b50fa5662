"""What a program's surroundings say to httpx, the SDK heeds: proxies, certificates. Several clients."""

import asyncio
import ssl

import pytest
import trustme

from runstate import AsyncRunstate, ConfigError, Runstate, UnavailableError
from tests.sdk.peer import Answer, Peer

SCOPE = {"id": "1"}
PROXIES = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"]
CERTIFICATES = ["SSL_CERT_FILE", "SSL_CERT_DIR"]
KEY = "rs_secret_key"


@pytest.fixture(autouse=True)
def no_surroundings(monkeypatch):
    for name in PROXIES + CERTIFICATES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def proxy():
    with Peer(lambda _: Answer(201, SCOPE)) as peer:
        yield peer


def created(base_url, **settings):
    """A new scope's id, by a client of its own."""
    wanted = {"api_key": KEY, "space_id": "s", "base_url": base_url, "retries": 0} | settings
    with Runstate(**wanted) as client:
        return client.scopes.create().id


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
def test_a_proxy_of_the_environment_is_used(monkeypatch, proxy, variable):
    monkeypatch.setenv(variable, proxy.url)
    assert created("http://runstate.example:8080") == "1"
    [request] = proxy.requests
    assert request.path == "http://runstate.example:8080/v1/spaces/s/scopes"
    assert request.headers["host"] == "runstate.example:8080"


@pytest.mark.parametrize("exempt", ["127.0.0.1", "other.example, 127.0.0.1", "*"])
def test_a_host_that_is_exempt_is_reached_without_the_proxy(monkeypatch, proxy, exempt):
    monkeypatch.setenv("HTTP_PROXY", proxy.url)
    monkeypatch.setenv("NO_PROXY", exempt)
    with Peer(lambda _: Answer(201, {"id": "direct"})) as direct:
        assert created(direct.url) == "direct"
    assert proxy.requests == []


def test_what_the_proxy_says_for_itself_is_no_answer_of_the_server(monkeypatch):
    with Peer(lambda _: Answer(502, b"<html>")) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        with pytest.raises(UnavailableError, match="502 from something in front"):
            created("http://runstate.example", retries=2)
    assert len(proxy.requests) == 3


def test_a_proxy_that_is_away_is_as_a_server_that_is_away(monkeypatch, proxy):
    monkeypatch.setenv("HTTP_PROXY", "http://user:pass-word@127.0.0.1:1")
    with pytest.raises(UnavailableError) as caught:
        created("http://runstate.example")
    assert "pass-word" not in str(caught.value)


UNUSABLE = {
    "a scheme that nobody knows": ("HTTP_PROXY", "gopher://user:pass-word@127.0.0.1:70"),
    "no URL": ("HTTP_PROXY", "http://127.0.0.1:port"),
    "socks without its package": ("ALL_PROXY", "socks5://user:pass-word@127.0.0.1:1080"),
    "no such file": ("SSL_CERT_FILE", "/nowhere/certificates.pem"),
    "no certificate": ("SSL_CERT_FILE", __file__),
}


@pytest.mark.parametrize(("variable", "value"), UNUSABLE.values(), ids=UNUSABLE)
def test_surroundings_that_cannot_be_used_are_a_config_error_that_names_the_variable(
    monkeypatch, variable, value
):
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigError, match=variable) as caught:
        created("https://127.0.0.1:1")
    assert "pass-word" not in f"{caught.value}{caught.value!r}"


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture
def secure(authority):
    """A peer that speaks TLS, with a certificate of an authority that nobody knows yet."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with Peer(lambda _: Answer(201, SCOPE), context) as peer:
        yield peer


@pytest.mark.parametrize("scheme", ["https", "HTTPS", "Https"])
def test_a_certificate_of_an_unknown_authority_is_refused_with_its_reason(secure, scheme):
    with pytest.raises(UnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
        created(secure.url.replace("https", scheme))
    assert secure.requests == []


def test_an_authority_that_the_environment_names_is_trusted(monkeypatch, secure, authority, tmp_path):
    path = tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(path)
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    assert created(secure.url) == "1"


def test_a_certificate_of_another_host_is_refused(monkeypatch, authority, tmp_path):
    path = tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(path)
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("other.example").configure_cert(context)
    with Peer(lambda _: Answer(201, SCOPE), context) as peer:
        with pytest.raises(UnavailableError, match="certificate"):
            created(peer.url)
        assert peer.requests == []


def test_clients_of_several_servers_keep_their_keys_spaces_and_connections_apart():
    def answer(name):
        return lambda request: Answer(201, {"id": f"{name}-{request.headers['authorization'][-1]}"})

    async def both(one, two):
        clients = [
            AsyncRunstate(api_key=f"key-{n}", space_id=f"space-{n}", base_url=peer.url)
            for n, peer in enumerate([one, two, one, two])
        ]
        try:
            made = await asyncio.gather(*(each.scopes.create() for each in clients * 5))
        finally:
            await clients[0].aclose()
            left = [(await each.scopes.create()).id for each in clients[1:]]
            for each in clients:
                await each.aclose()
        return [scope.id for scope in made], left

    with Peer(answer("one")) as one, Peer(answer("two")) as two:
        made, left = asyncio.run(both(one, two))
    assert made == ["one-0", "two-1", "one-2", "two-3"] * 5
    assert left == ["two-1", "one-2", "two-3"]
    for peer, mine in ((one, {"0", "2"}), (two, {"1", "3"})):
        for request in peer.requests:
            n = request.headers["authorization"].rpartition("-")[2]
            assert n in mine
            assert request.path == f"/v1/spaces/space-{n}/scopes"


def test_a_client_in_another_space_goes_the_same_way_by_the_same_key():
    with Peer(lambda _: Answer(201, SCOPE)) as peer:
        with Runstate(api_key=KEY, space_id="one", base_url=f"{peer.url}/prefix/") as client:
            other = client.with_space("two")
            assert other.with_space("three").scopes.create().id == "1"
            assert other.scopes.create().id == client.scopes.create().id == "1"
            assert (client.space_id, other.space_id) == ("one", "two")
            with pytest.raises(ConfigError, match="space_id"):
                client.with_space("a/b")
            other.close()
            assert client.scopes.create().id == "1"
        with pytest.raises(ConfigError, match="closed"):
            other.scopes.create()
    assert [request.path for request in peer.requests] == [
        f"/prefix/v1/spaces/{space}/scopes" for space in ("three", "two", "one", "one")
    ]
    assert {request.headers["authorization"] for request in peer.requests} == {f"Bearer {KEY}"}
