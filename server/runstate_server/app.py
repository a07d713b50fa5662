"""Builds the app: the one list of rooms, the key check, the error handlers, the pool, the bus, the sweeps,
the drain."""

import asyncio
import contextlib
import logging
import signal
import threading
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Sequence
from http import HTTPStatus
from types import FrameType
from typing import Any

import asyncpg
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from prometheus_client import CollectorRegistry, generate_latest
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from runstate_server import __version__, migrator
from runstate_server.foundation import bounds, db, logs
from runstate_server.foundation.db import Trouble
from runstate_server.foundation.errors import Code, Refusal
from runstate_server.kernel import install
from runstate_server.kernel.call import Kernel
from runstate_server.primitives.allowances.routes import router as allowances
from runstate_server.primitives.barriers.routes import router as barriers
from runstate_server.primitives.budgets.routes import router as budgets
from runstate_server.primitives.claims.routes import router as claims
from runstate_server.primitives.events.routes import router as events
from runstate_server.primitives.groups.routes import router as groups
from runstate_server.primitives.mailboxes.routes import router as mailboxes
from runstate_server.primitives.messages.routes import router as messages
from runstate_server.primitives.once.routes import router as once
from runstate_server.primitives.ops import kernel as ops_kernel
from runstate_server.primitives.ops.routes import router as ops
from runstate_server.primitives.permits.routes import router as permits
from runstate_server.primitives.scopes.routes import router as scopes
from runstate_server.primitives.spaces import kernel as spaces
from runstate_server.primitives.spaces.routes import router as admin
from runstate_server.primitives.tasks.routes import router as tasks
from runstate_server.primitives.timers.routes import router as timers
from runstate_server.primitives.work_limits.routes import router as work_limits
from runstate_server.settings import Settings, load
from runstate_server.sweeps.loop import Sequencer, Sweeper
from runstate_server.sweeps.partitions import Partitions
from runstate_server.sweeps.schedule import sweeps
from runstate_server.wakeups.bus import Bus
from runstate_server.web import caller, front, protocol, replies
from runstate_server.web.document import add_document, operation_id
from runstate_server.web.exchange import Floor
from runstate_server.web.longpoll import Drain, LongPolls
from runstate_server.web.metrics import Gauges
from runstate_server.web.waiting import Stay

ROOMS = (
    *(scopes, once, claims, mailboxes, messages, tasks, permits, allowances, budgets, work_limits),
    *(groups, barriers, timers, events, ops, admin),
)
_READY_S_MAX = 2.0
_CHECK_S_MAX = 10.0
log = logging.getLogger("runstate")


class BehindError(Exception):
    """This database cannot be served from; the text is one line that says which command to run."""


class Service:
    """Everything of one process that lives as long as it serves."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.drain = Drain()
        self.schema = install.schema_name(test_clock=settings.test_clock)
        self.registry = CollectorRegistry()
        self.traffic = front.Traffic(self.registry)
        self.keys = caller.KeyRing(self._find_key, patience_s=settings.outage_wait_s)
        self._replica = uuid.uuid4()
        self.pool: Any = None
        self.kernel: Kernel
        self.bus: Bus
        self.sequencer: Sequencer
        self.sweeper: Sweeper
        self.partitions: Partitions
        self.floor: Floor
        self._alive: asyncio.Task[None]
        self._telling: asyncio.Task[None]

    async def open(self) -> None:
        """Open the pool; it makes no connection yet."""
        s = self.settings
        self.pool = await db.open_pool(
            s.database_dsn, size=s.pool_size, named_statements=s.named_statements, greet=self._greet
        )

    async def start(self) -> None:
        """Open the pool, check the database, begin the background work. Raises BehindError."""
        s = self.settings
        await self.open()
        self.kernel = Kernel(
            self.pool, schema=self.schema, outage_wait_s=s.outage_wait_s, committed=self._committed
        )
        self.bus = Bus(s.listen_dsn if s.notify else None, tick=self._tick, tick_s=s.tick_s)
        self.sequencer = Sequencer(self.kernel, wake=self.bus.wake)
        self.sweeper = Sweeper(
            self.kernel,
            sweeps(),
            interval_s=s.sweep_s,
            wake=self._committed,
            nudge=self.sequencer.nudge,
        )
        self.partitions = Partitions(self.kernel, s.listen_dsn, keep_days=s.retention_days)
        engine = db.open_engine(s.database_dsn, named_statements=s.named_statements)
        polls = LongPolls(self.bus, self.drain)
        self.floor = Floor(self.kernel, polls, engine, self.sweeper.due_in)
        self.registry.register(Gauges(self.kernel, polls, self.bus, self.sweeper, self.sequencer))
        await self.check()
        if s.bootstrap_space_id is not None and s.bootstrap_api_key is not None:
            await spaces.bootstrap(
                self.kernel, space_id=s.bootstrap_space_id, api_key=s.bootstrap_api_key.get_secret_value()
            )
        self.bus.start()
        self.sequencer.start()
        self.sweeper.start()
        self.partitions.start()
        self._alive = asyncio.create_task(self._live(), name="replica")
        self._telling = asyncio.create_task(polls.waiters.run(self._tell_waits), name="waits")

    async def stop(self) -> None:
        """End the background work, then the connections; each within a second, also when the database says
        nothing."""
        for task in (self._alive, self._telling):
            task.cancel()
        workers = (self.partitions, self.sweeper, self.sequencer, self.bus)
        ends = (self._alive, self._telling, *(worker.stop() for worker in workers))
        await _within_a_second(asyncio.gather(*ends, return_exceptions=True))
        waiters = self.floor.long_polls.waiters
        goodbyes = (waiters.leave(self._tell_waits), self.kernel.step("replica_gone", self._replica))
        await _within_a_second(asyncio.gather(*goodbyes, return_exceptions=True))
        await _within_a_second(asyncio.gather(self.floor.engine.dispose(), self.pool.close()))
        self.pool.terminate()

    def begin_drain(self) -> None:
        """Answer long polls at once, and let no call wait long for a database that is away."""
        self.drain.event.set()
        self.kernel.hurry()

    async def ready(self) -> str | None:
        """Why this replica should get no traffic; None when it should."""
        if self.drain.draining:
            return "draining"
        asked_at = time.monotonic()
        try:
            async with asyncio.timeout(_READY_S_MAX):
                return await self._behind(_READY_S_MAX)
        except Exception as error:
            kind = db.trouble(error)
            if kind is None:
                raise
            if kind is Trouble.LOST and self.kernel.answered_at > asked_at:
                return None  # no connection of a busy pool was to be had: the database is not away
            return f"the database is away ({db.named(error)})"

    async def check(self) -> None:
        """Raises BehindError when this build cannot serve from the database, or it stays away for half a
        minute."""
        deadline = asyncio.get_running_loop().time() + 30.0
        while True:
            try:
                async with asyncio.timeout(_CHECK_S_MAX):
                    reason = await self._behind(bounds.connect_timeout_s)
                break
            except Exception as error:
                passes = db.trouble(error) not in (None, Trouble.UNFIT)
                if not passes or asyncio.get_running_loop().time() > deadline:
                    raise BehindError(db.unreachable(error)) from error
            await asyncio.sleep(0.5)
        if reason is not None:
            raise BehindError(reason)

    async def _greet(self, connection: Any) -> None:
        """Before a new connection serves: whether it leads to the database that it used to."""
        with contextlib.suppress(asyncpg.InvalidSchemaNameError, asyncpg.UndefinedFunctionError):
            raised = await connection.fetchval(f"SELECT {self.schema}.epoch_guard()")
            if raised is not None:
                log.warning(
                    "the database is a restored copy or a promoted standby: its epoch is now %d", raised
                )

    async def _behind(self, within_s: float) -> str | None:
        async with db.borrowed(self.pool, within_s=within_s) as connection:
            return await migrator.behind(connection, test_clock=self.settings.test_clock)

    async def _find_key(self, digest: bytes) -> caller.KnownKey:
        reply = await spaces.find_key(self.kernel, digest)
        if reply.code is not None:
            raise replies.refusal_of(reply)
        return caller.known_key(reply.facts)

    def _committed(self, topics: Sequence[str]) -> None:
        self.bus.wake(topics)
        self.sequencer.nudge()

    async def _tick(self, names: list[str], seen: list[int], limit: int) -> list[Any]:
        return await self.kernel.rows("journal_tick", names, seen, limit)

    async def _tell_waits(self, gone: Sequence[Stay], come: Sequence[Stay], now: float) -> None:
        await ops_kernel.publish(self.kernel, self._replica, gone, come, now)

    async def _live(self) -> None:
        """Say every few seconds that this replica is alive, and learn how many are."""
        while True:
            try:
                self.bus.replicas = (await self.kernel.step("replica_seen", self._replica, self.schema))[0]
            except Exception as error:
                if db.trouble(error) is None:
                    log.exception("the replica row could not be written")
            await asyncio.sleep(5.0)


async def _within_a_second(ending: Awaitable[Any]) -> None:
    """Whatever comes of it: the process is about to end, and with it all of its connections."""
    with contextlib.suppress(Exception):
        await asyncio.wait_for(ending, 1.0)


async def reason_not_to_serve(settings: Settings) -> str | None:
    """Why `serve` would refuse this database, in one line; None when it would not. Waits a while for one that
    is away."""
    service = Service(settings)
    await service.open()
    try:
        await service.check()
    except BehindError as error:
        return str(error)
    finally:
        service.pool.terminate()
    return None


def drain_on_signals(service: Service) -> None:
    """Begin the drain at the first SIGTERM or SIGINT, before uvicorn hears of it: its own shutdown waits for
    open polls, and closes the sockets. The second signal goes straight through."""
    if threading.current_thread() is not threading.main_thread():
        return
    loop = asyncio.get_running_loop()
    before = {n: h for n in (signal.SIGTERM, signal.SIGINT) if callable(h := signal.getsignal(n))}

    def hook(number: int, frame: FrameType | None) -> None:
        for each, handler in before.items():
            signal.signal(each, handler)
        loop.call_soon_threadsafe(service.begin_drain)
        loop.call_soon_threadsafe(
            loop.call_later, service.settings.drain_grace_s, before[signal.Signals(number)], number, frame
        )

    for each in before:
        signal.signal(each, hook)


def create_app(settings: Settings | None = None) -> ASGIApp:
    """The ASGI app of one process, as uvicorn's factory: one of several begins without its parent's logs."""
    settings = settings or load()
    logs.configure(settings.log_format, settings.log_level)
    return build(Service(settings))


def build(service: Service) -> front.Front:
    """The app around a service; `app.app` is FastAPI's own, for its routes and document."""
    settings = service.settings
    for secret in (settings.admin_token, settings.bootstrap_api_key):
        if secret is not None:
            logs.hide(secret.get_secret_value())

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
        await service.start()
        app.state.floor = service.floor
        drain_on_signals(service)
        try:
            yield {protocol.STALL_S: settings.stall_s}
        finally:
            await service.stop()

    app = FastAPI(
        title="Runstate",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        strict_content_type=False,
        generate_unique_id_function=operation_id,
    )
    app.exception_handler(Refusal)(_refused)
    app.exception_handler(RequestValidationError)(_invalid)
    app.exception_handler(HTTPException)(_http)
    app.exception_handler(Exception)(_crashed)
    for room in ROOMS:
        app.include_router(room)
    _add_probes(app, service)
    add_document(app)
    token = settings.admin_token
    return front.Front(
        app,
        keys=service.keys,
        admin_token=token.get_secret_value() if token is not None else None,
        traffic=service.traffic,
    )


def _add_probes(app: FastAPI, service: Service) -> None:
    @app.get("/healthz", tags=["probes"])
    async def healthz() -> dict[str, str]:
        """The process is alive."""
        return {"status": "ok"}

    @app.get("/readyz", tags=["probes"])
    async def readyz() -> Response:
        """The database is reachable, its schema is this build's, and the replica is not draining."""
        reason = await service.ready()
        if reason is not None:
            raise Refusal(Code.UNAVAILABLE, f"not ready: {reason}", retry_after_s=1)
        return replies.plain({"status": "ready"})

    @app.get("/metrics", tags=["probes"], response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Counts and gauges in Prometheus' text form."""
        return PlainTextResponse(generate_latest(service.registry), media_type="text/plain; version=0.0.4")


def _id_of(request: Request) -> str:
    return str(request.scope["runstate.request_id"])


async def _refused(request: Request, error: Refusal) -> Response:
    return replies.error(error, _id_of(request))


async def _crashed(request: Request, _error: Exception) -> Response:
    """In place of the framework's own plain text; the front logs the error, which is raised on to it."""
    return replies.error(front.crash(), _id_of(request))


async def _invalid(request: Request, error: RequestValidationError) -> Response:
    """Pydantic's findings in one line that names the fields; what the client sent is not repeated."""
    return replies.error(Refusal(Code.VALIDATION_FAILED, front.findings(error.errors())), _id_of(request))


async def _http(request: Request, error: HTTPException) -> Response:
    """Unknown paths and wrong methods, in the envelope."""
    if error.status_code == HTTPStatus.NOT_FOUND:
        refusal = Refusal(Code.NOT_FOUND, "there is no such path")
    else:
        refusal = Refusal(
            Code.VALIDATION_FAILED,
            _why_not(request.method, error),
            status=error.status_code,
            headers=dict(error.headers or {}) | _allowed(request, error),
        )
    return replies.error(refusal, _id_of(request))


def _allowed(request: Request, error: HTTPException) -> dict[str, str]:
    """With a 405: the methods of all routes of this path, of which the framework names those of the first
    alone. As in the document, a path that is written out comes before one with a parameter in its place."""
    if error.status_code != HTTPStatus.METHOD_NOT_ALLOWED:
        return {}
    routes = [*request.app.routes, *(route for room in ROOMS for route in room.routes)]
    here = [r for r in routes if isinstance(r, Route) and r.path_regex.match(request.scope["path"])]
    closest = min((len(route.param_convertors) for route in here), default=0)
    methods = {m for r in here if len(r.param_convertors) == closest for m in r.methods or ()}
    return {"Allow": ", ".join(sorted(methods))}


def _why_not(method: str, error: HTTPException) -> str:
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        return f"{method} is not possible on this path"
    return str(error.detail)
