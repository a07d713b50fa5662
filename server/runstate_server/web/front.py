"""The outermost layer, pure ASGI: request id, raw path, the key check, the envelope of crashes, counts, the
access log."""

import functools
import logging
import time
import uuid
from collections.abc import Sequence
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from runstate_server.foundation.errors import Code, Refusal
from runstate_server.foundation.logs import request_id
from runstate_server.web import admin, replies
from runstate_server.web.caller import KeyRing
from runstate_server.web.longpoll import ClientGone

_SPACES: Final = "/v1/spaces/"
_ADMIN: Final = "/v1/admin/"
_FINDINGS_MAX: Final = 5
_GONE: Final = 499  # what the log and the counts say when the caller hung up
log = logging.getLogger("runstate.access")


class Traffic:
    """Counts of requests, by route, method and status."""

    def __init__(self, registry: CollectorRegistry) -> None:
        names = ("method", "route", "status")
        self.open = Gauge("runstate_requests_open", "Requests being answered.", registry=registry)
        self.requests = Counter("runstate_requests", "Requests answered.", names, registry=registry)
        self.seconds = Histogram(
            "runstate_request_seconds",
            "Time to answer, long polls included.",
            ("method", "route"),
            buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
            registry=registry,
        )

    def count(self, scope: Scope, status: int, started: float) -> None:
        """Count and log one request; `started` is of the monotonic performance counter."""
        self.open.dec()
        route = getattr(scope.get("route"), "path", "unknown")
        took = time.perf_counter() - started
        self.requests.labels(scope["method"], route, str(status)).inc()
        self.seconds.labels(scope["method"], route).observe(took)
        quiet = scope["path"] in ("/healthz", "/readyz", "/metrics")
        log.log(
            logging.DEBUG if quiet else logging.INFO,
            "%s %s %d",
            scope["method"],
            route,
            status,
            extra={"took_ms": round(took * 1000, 1)},
        )


class Front:
    """Wraps the app. Routes see the raw path, so that a key or name in it may contain `/`."""

    def __init__(self, app: ASGIApp, *, keys: KeyRing, admin_token: str | None, traffic: Traffic) -> None:
        self.app = app
        self._keys = keys
        self._admin_token = admin_token
        self._traffic = traffic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI call."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        self._traffic.open.inc()
        rid = uuid.uuid4().hex
        token = request_id.set(rid)
        raw = scope.get("raw_path") or scope["path"].encode()
        scope = {**scope, "path": raw.decode("latin-1"), "runstate.request_id": rid}
        status = 0

        async def tagged(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", rid.encode())]
            await send(message)

        try:
            await self._enter(scope, receive, tagged)
        except ClientGone:
            status = _GONE
        except Refusal as refusal:
            await replies.error(refusal, rid)(scope, receive, tagged)
        except Exception:
            log.exception("a request crashed")
            if not status:
                await replies.error(crash(), rid)(scope, receive, tagged)
        finally:
            self._traffic.count(scope, status, started)
            request_id.reset(token)

    async def _enter(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The key check of every /v1 call, before anything else is looked at."""
        path: str = scope["path"]
        if path.startswith("/v1/"):
            authorization = _header(scope, b"authorization")
            if path.startswith(_ADMIN):
                who = await admin.identify(self._keys, self._admin_token, authorization)
                scope["runstate.administrator"] = who
            elif path.startswith(_SPACES):
                space_id = path.removeprefix(_SPACES).partition("/")[0]
                who_calls = functools.partial(self._keys.caller, authorization, space_id)
                scope["runstate.caller"] = await who_calls()
                scope["runstate.caller_again"] = who_calls
            else:
                await self._keys.known(authorization)
        await self.app(scope, receive, send)


def findings(errors: Sequence[Any]) -> str:
    """Validation errors as one line for people: each field with what is wrong, never with what was sent."""
    lines: list[str] = []
    for item in errors[:_FINDINGS_MAX]:
        where = ".".join(str(part) for part in item["loc"] if part not in ("body", "query", "path", "header"))
        if item["type"] == "extra_forbidden":
            lines.append(f"unknown field {where!r}")
        elif item["type"] == "missing":
            lines.append(f"{where or 'body'!r} is required")
        else:
            text = str(item["msg"]).removeprefix("Value error, ")
            lines.append(f"{where!r}: {text[:1].lower()}{text[1:]}")
    more = len(errors) - len(lines)
    return "; ".join(lines) + (f"; and {more} more" if more > 0 else "")


def crash() -> Refusal:
    """What a client sees of a defect: no inner detail."""
    return Refusal(
        Code.INTERNAL, "the server failed on this request; its log has the details under this request id"
    )


def _header(scope: Scope, name: bytes) -> str | None:
    values: list[Any] = [v for k, v in scope["headers"] if k == name]
    return values[0].decode("latin-1") if len(values) == 1 else None
