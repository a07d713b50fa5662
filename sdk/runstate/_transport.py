"""HTTP, by the only importer of httpx: sends a call, repeats attempts that got no answer, decodes refusals.

`Transport` is shared by everything one client makes; `Space` is it with a space, and what handles work with.
Each event loop has an httpx client of its own, re-made after fork()."""

import asyncio
import contextlib
import json
import os
import platform
import re
import secrets
import time
import uuid
import weakref
from collections.abc import Mapping, MutableMapping
from typing import Any, TypeAlias
from urllib.parse import quote, urlencode

import httpx

from runstate import _retry
from runstate._background import at_loop_stop
from runstate._config import Config
from runstate.errors import ConfigError, RunstateError, UnavailableError, map_error

VERSION = "0.1.0"
_IDLE_CONNECTIONS_MAX = 32
_IDLE_S_MAX = 4.0  # under the five seconds after which many servers hang up
_TEXT_SHOWN_CHARS_MAX = 200
_NO_CONTENT = 204
_REFUSED_FROM = 300
_SURROUNDINGS = frozenset(
    {"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR"}
)
_PASSWORD = re.compile(r"//[^@/\s]*@")

_Clients: TypeAlias = MutableMapping[asyncio.AbstractEventLoop, httpx.AsyncClient]


class Transport:
    """Connections and identity of one client. Makes no connection before the first call."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._closed = False
        self._start_process()

    @property
    def holder(self) -> str:
        """The name this client holds leases under."""
        return self.config.holder

    @property
    def session(self) -> str:
        """Random per client and process: what tells two holders of one name apart."""
        if self._pid != os.getpid():
            _inherited.append(self._clients)
            self._start_process()
        return self._session

    def client(self) -> httpx.AsyncClient:
        """The running loop's own httpx client."""
        if self._closed:
            raise ConfigError("this runstate client has been closed")
        loop = asyncio.get_running_loop()
        found = self._clients.get(loop) if self.session else None
        if found is None:
            found = self._clients[loop] = _connections(self.config)
            at_loop_stop(self._close_here)
        return found

    async def aclose(self) -> None:
        """Closes the connections of every loop that still runs. Later calls are refused."""
        self._closed = True
        await self._close_here()
        _close_abandoned(self._clients, self._pid)

    async def _close_here(self) -> None:
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()

    def _start_process(self) -> None:
        self._pid = os.getpid()
        self._session = secrets.token_hex(8)
        self._clients: _Clients = weakref.WeakKeyDictionary()
        weakref.finalize(self, _close_abandoned, self._clients, self._pid).atexit = False


def _connections(config: Config) -> httpx.AsyncClient:
    """Httpx's client, which takes proxies and certificates from the environment. Refuses (ConfigError) what
    it cannot use of that."""
    try:
        return httpx.AsyncClient(
            headers={
                "authorization": f"Bearer {config.api_key}",
                "user-agent": f"runstate-sdk/{VERSION} python/{platform.python_version()}",
                "accept": "application/json",
            },
            # Without TLS there is nothing to verify, and loading certificates takes a while.
            verify=config.base_url.startswith("https:"),
            # Each attempt has one deadline for all of it, set by `_attempt`. A long poll keeps its
            # connection while it waits, so a bound on connections would let waiters starve renewals.
            timeout=None,  # noqa: S113
            limits=httpx.Limits(
                max_connections=None,
                max_keepalive_connections=_IDLE_CONNECTIONS_MAX,
                keepalive_expiry=_IDLE_S_MAX,
            ),
        )
    except Exception as error:
        names = [name for name in os.environ if name.upper() in _SURROUNDINGS and os.environ[name].strip()]
        if not names:
            raise
        told = _PASSWORD.sub("//***@", f"{type(error).__name__}: {error}")
        raise ConfigError(
            f"no connection can be made with {' and '.join(names)} as they are: {told}"
        ) from error


class Space:
    """One space over one transport: what every handle sends its calls through."""

    def __init__(self, transport: Transport, space_id: str) -> None:
        self.transport = transport
        self.space_id = space_id
        self.ids: dict[tuple[str, str], str] = {}  # of (room, name), as looked up: they never change
        self.settings: dict[tuple[str, str], Any] = {}  # of (room, name), as they were when last checked

    def holder(self) -> dict[str, str]:
        """The two fields of a request that say who will hold the lease."""
        return {"holder": self.transport.holder, "holderSession": self.transport.session}

    async def call(
        self,
        method: str,
        *path: str,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, Any] | None = None,
        wait_ms: int = 0,
        idempotency_key: str | None = None,
        attempt_ms: float | None = None,
        retries: int | None = None,
    ) -> Any:
        """The decoded answer, None for 204. `path` is given in segments and encoded here; fields of `body`
        and `query` that are None are left out. `wait_ms` is sent as waitMs of a GET (in a POST it stands in
        the body) and added to the deadline of each attempt (`attempt_ms`, else the client's own). Raises what
        the server refused, or UnavailableError with status 0 when no attempt got a usable answer: the call
        may have been carried out all the same."""
        config = self.transport.config
        url = self._url(path)
        headers = {} if method == "GET" else {"idempotency-key": idempotency_key or new_idempotency_key()}
        if body is not None:
            headers["content-type"] = "application/json"
        content = None if body is None else _encoded(body)
        started = time.monotonic()
        failures = 0
        while True:
            # A repeated GET waits for what is left; a repeated POST must be the same to the byte, and waits
            # as long again.
            again = failures and method == "GET"
            left_ms = max(0, wait_ms - round((time.monotonic() - started) * 1000)) if again else wait_ms
            budget_ms = (config.request_timeout_ms if attempt_ms is None else attempt_ms) + left_ms
            request = self.transport.client().build_request(
                method,
                url + _query_string(query, left_ms if method == "GET" else 0),
                content=content,
                headers=headers,
            )
            try:
                return self._decoded(await self._attempt(request, budget_ms / 1000))
            except _NoAnswerError as error:
                failures += 1
                if failures > (config.retries if retries is None else retries):
                    raise UnavailableError(
                        self._scrubbed(f"{method} {path[0]}: {error}")
                    ) from error.__cause__
            await asyncio.sleep(_retry.attempt_pause_s(failures))

    async def _attempt(self, request: httpx.Request, budget_s: float) -> httpx.Response:
        # Not asyncio.wait_for: on 3.10 it can swallow a cancellation that arrives together with the answer.
        sending = asyncio.ensure_future(self.transport.client().send(request))
        sending.add_done_callback(_seen)
        try:
            await asyncio.wait({sending}, timeout=budget_s)
        finally:
            sending.cancel()
        await asyncio.wait({sending})
        if sending.cancelled():
            raise _NoAnswerError(f"no answer within {budget_s:g} s ({self.transport.config.base_url})")
        try:
            return sending.result()
        except (httpx.TransportError, httpx.DecodingError, OSError) as error:
            text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise _NoAnswerError(f"{text} ({self.transport.config.base_url})") from error

    def _decoded(self, response: httpx.Response) -> Any:
        if response.status_code == _NO_CONTENT:
            return None
        try:
            answer = response.json()
        except ValueError:  # not JSON, or not UTF-8
            answer = None
        if response.status_code < _REFUSED_FROM and isinstance(answer, dict):
            return answer
        envelope = answer.get("error") if isinstance(answer, dict) else None
        if isinstance(envelope, dict) and isinstance(envelope.get("code"), str):
            raise map_error(
                envelope["code"],
                response.status_code,
                self._scrubbed(str(envelope.get("message", envelope["code"]))),
                envelope.get("requestId"),
                _retry_after_ms(response),
            )
        if _retry.may_repeat_answer(response.status_code, has_envelope=False):
            raise _NoAnswerError(f"{response.status_code} from something in front of the server")
        raise RunstateError(
            self._scrubbed(
                f"{self.transport.config.base_url} does not answer like a runstate server: "
                f"{response.status_code} {response.text[:_TEXT_SHOWN_CHARS_MAX]!r}"
            ),
            code=f"HTTP_{response.status_code}",
            status=response.status_code,
            request_id=response.headers.get("x-request-id"),
        )

    def _url(self, path: tuple[str, ...]) -> str:
        segments = "/".join(_segment(each) for each in (self.space_id, *path))
        return f"{self.transport.config.base_url}/v1/spaces/{segments}"

    def _scrubbed(self, text: str) -> str:
        return text.replace(self.transport.config.api_key, "***")


class _NoAnswerError(Exception):
    """An attempt that got no usable answer; the text says what it got."""


def new_idempotency_key() -> str:
    """A key for one logical call; pass the same one to `call` again to ask for the outcome of the first."""
    return uuid.uuid4().hex


def _encoded(body: Mapping[str, Any]) -> bytes:
    given = {name: value for name, value in body.items() if value is not None}
    try:
        return json.dumps(given, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"the request cannot be written as JSON: {error}") from error


def _query_string(query: Mapping[str, Any] | None, wait_ms: int) -> str:
    given = {name: value for name, value in (query or {}).items() if value is not None}
    if wait_ms:
        given["waitMs"] = wait_ms
    return "?" + urlencode(given, quote_via=quote, safe="") if given else ""


def _segment(text: str) -> str:
    if not text:
        raise ConfigError("an id, name or key must not be empty")
    # "." and ".." would be resolved on the way, as steps of a path.
    return quote(text, safe="") if text.strip(".") else "%2E" * len(text)


def _seen(sending: "asyncio.Future[Any]") -> None:
    # An error that comes after everybody has gone is nobody's; asyncio would print it as forgotten.
    if not sending.cancelled():
        sending.exception()


def _retry_after_ms(response: httpx.Response) -> int | None:
    try:
        return max(0, round(float(response.headers["retry-after"]) * 1000))
    except (KeyError, ValueError, OverflowError):
        return None


def _close_abandoned(clients: _Clients, pid: int) -> None:
    # Closes clients from outside their loops, each on its own loop if that still runs, in this process.
    if pid != os.getpid():
        return
    for loop, client in list(clients.items()):
        clients.pop(loop, None)
        with contextlib.suppress(RuntimeError):  # the loop has been closed meanwhile
            if loop.is_running():
                asyncio.run_coroutine_threadsafe(client.aclose(), loop)


_inherited: list[Any] = []  # clients of the parent process, never to be closed by the child
