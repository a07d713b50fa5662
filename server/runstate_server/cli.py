"""`runstate dev | serve | migrate | bump-epoch | settings | space | key`: arguments, signals and one clear
line for what a person can mend."""

import argparse
import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from runstate_server import __version__

if TYPE_CHECKING:
    from runstate_server.settings import Settings

_DEV_SPACE = "dev"
_KEY_FILE = "api-key"
_GRACEFUL_S = 8
_ALIVE_S = (
    30  # within which one of several server processes says that it lives; a slow machine takes its time
)
_BACKLOG = 1024


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns: the exit status."""
    from runstate_server.embedded import EmbeddedError
    from runstate_server.settings import SettingsError

    parser = _parser()
    options = parser.parse_args(argv)
    with _terminable():
        try:
            return int(options.run(options))
        except (SettingsError, EmbeddedError) as error:
            _fail(str(error))
        except KeyboardInterrupt:
            return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="runstate", description="The Runstate coordination server.")
    parser.add_argument("--version", action="version", version=f"runstate {__version__}")
    commands = parser.add_subparsers(required=True, metavar="command")
    dev = commands.add_parser(
        "dev", help="server with a PostgreSQL of its own in a data folder, one space and one key"
    )
    dev.add_argument("--port", type=int, help="TCP port (default: RUNSTATE_PORT, else 8080)")
    dev.add_argument(
        "--data-dir", type=Path, help="folder of the database and the key (default: RUNSTATE_DATA_DIR)"
    )
    dev.set_defaults(run=_dev)
    serve = commands.add_parser("serve", help="one replica on the database of RUNSTATE_DATABASE_URL")
    serve.add_argument("--host", help="address to listen on (default: RUNSTATE_HOST, else 127.0.0.1)")
    serve.add_argument("--port", type=int, help="TCP port (default: RUNSTATE_PORT, else 8080)")
    serve.set_defaults(run=_serve)
    migrate = commands.add_parser(
        "migrate", help="bring the database of RUNSTATE_DATABASE_URL to this build; harmless to repeat"
    )
    migrate.set_defaults(run=_migrate)
    settings = commands.add_parser(
        "settings", help="every RUNSTATE_ variable with its value, default and bound"
    )
    settings.set_defaults(run=_settings)
    bump = commands.add_parser(
        "bump-epoch", help="after the database was replaced by an older copy: no number is given twice"
    )
    bump.set_defaults(run=_operate, verb="epoch_raise")
    _add_space_commands(commands.add_parser("space", help="create, list, suspend and resume spaces"))
    _add_key_commands(commands.add_parser("key", help="create, list and revoke the keys of a space"))
    return parser


def _add_space_commands(space: argparse.ArgumentParser) -> None:
    verbs = space.add_subparsers(required=True, metavar="verb")
    create = verbs.add_parser("create", help="a new space")
    create.add_argument("id", help="1 to 64 of A-Z a-z 0-9 . _ -")
    create.add_argument("--name", help="what people call it (default: the id)")
    create.set_defaults(run=_operate, verb="space_create")
    verbs.add_parser("list", help="all spaces").set_defaults(run=_operate, verb="space_list")
    for verb, text in (("suspend", "refuse every call of its keys"), ("resume", "serve it again")):
        change = verbs.add_parser(verb, help=text)
        change.add_argument("id")
        change.set_defaults(run=_operate, verb="space_" + verb)


def _add_key_commands(key: argparse.ArgumentParser) -> None:
    verbs = key.add_subparsers(required=True, metavar="verb")
    create = verbs.add_parser("create", help="a new key; it is shown once, or written to a file")
    create.add_argument("space")
    create.add_argument("--label", required=True, help="what people call it")
    create.add_argument(
        "--permissions", default="runtime,observe,resource_config", help="comma list (default: %(default)s)"
    )
    create.add_argument("--expires", help="RFC 3339 time with an offset (default: never)")
    create.add_argument("--also", default="", help="comma list of further spaces it covers")
    create.add_argument("--out", type=Path, help="write it to this new file, readable by its owner alone")
    create.set_defaults(run=_operate, verb="key_create")
    listing = verbs.add_parser("list", help="the keys of a space, never the keys themselves")
    listing.add_argument("space")
    listing.set_defaults(run=_operate, verb="key_list")
    revoke = verbs.add_parser("revoke", help="effective on every replica within 5 s")
    revoke.add_argument("space")
    revoke.add_argument("id", help="the key's id, as listed")
    revoke.set_defaults(run=_operate, verb="key_revoke")


def _fail(message: str) -> NoReturn:
    print(f"runstate: {message}", file=sys.stderr)
    raise SystemExit(1)


# SIGTERM before and after serving. While uvicorn serves it handles the signal itself; when it is done it
# raises the # signal again, which must then not end this process before it has stopped its database.
_serving = False


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    def terminate(_signal: int, _frame: FrameType | None) -> None:
        if not _serving:
            raise SystemExit(0)

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _listen(host: str, port: int) -> socket.socket:
    """The listening socket, taken before anything is started."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        _fail(
            f"cannot listen on {host}:{port}: {error.strerror}; choose another with --port or RUNSTATE_PORT"
        )
    listener.set_inheritable(True)
    return listener


def _run_server(settings: "Settings", listener: socket.socket) -> None:
    """Serve until SIGTERM or SIGINT; returns when the last connection is closed or its time is up."""
    import uvicorn
    from uvicorn.supervisors import Multiprocess

    from runstate_server import app

    global _serving  # noqa: PLW0603  one process, one state of its signals
    one = settings.workers == 1
    config = uvicorn.Config(
        app.build(app.Service(settings)) if one else "runstate_server.app:create_app",
        factory=not one,
        workers=settings.workers,
        http="runstate_server.web.protocol:Protocol",  # a name: a process that begins must answer at once
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=_GRACEFUL_S,
        timeout_worker_healthcheck=_ALIVE_S,
    )
    _serving = True
    try:
        if one:
            server = uvicorn.Server(config)
            server.run(sockets=[listener])
            if not server.started:
                raise SystemExit(1)
        else:
            Multiprocess(config, [listener]).run()
    finally:
        _serving = False


def _serve(options: argparse.Namespace) -> int:
    from runstate_server import app
    from runstate_server.foundation import logs
    from runstate_server.settings import load

    settings = load(host=options.host, port=options.port)
    logs.configure(settings.log_format, settings.log_level)
    reason = asyncio.run(app.reason_not_to_serve(settings))
    if reason is not None:
        _fail(reason)
    if settings.workers > 1:
        os.environ["RUNSTATE_HOST"], os.environ["RUNSTATE_PORT"] = settings.host, str(settings.port)
    listener = _listen(settings.host, settings.port)
    host, port = listener.getsockname()[:2]
    print(f"runstate {__version__} serves on http://{host}:{port}", flush=True)
    _run_server(settings, listener)
    return 0


def _migrate(_options: argparse.Namespace) -> int:
    from runstate_server import migrator
    from runstate_server.foundation import logs
    from runstate_server.settings import load

    settings = load()
    logs.configure(settings.log_format, settings.log_level)
    try:
        migrator.migrate(settings.database_dsn, test_clock=settings.test_clock)
    except migrator.MigrationError as error:
        _fail(str(error))
    print(f"the database is at revision {migrator.head_revision()}")
    return 0


def _settings(_options: argparse.Namespace) -> int:
    from runstate_server.settings import describe, load

    for item in describe(load()):
        bound = f"  [{item.bound}]" if item.bound else ""
        print(f"{item.name}={item.value}{bound}\n    {item.meaning} Default: {item.default or 'unset'}.")
    return 0


def _operate(options: argparse.Namespace) -> int:
    """One verb of `space` or `key`, or `bump-epoch`, straight on the database of RUNSTATE_DATABASE_URL."""
    from runstate_server.foundation import logs
    from runstate_server.foundation.errors import Refusal
    from runstate_server.operate import operate
    from runstate_server.settings import load

    settings = load()
    logs.configure(settings.log_format, "warning")
    try:
        for line in asyncio.run(operate(settings, options)):
            print(line)
    except Refusal as refusal:
        _fail(refusal.message)
    except OSError as error:
        _fail(str(error))
    return 0


def _dev(options: argparse.Namespace) -> int:
    from runstate_server import migrator
    from runstate_server.embedded import EmbeddedPostgres, default_data_dir
    from runstate_server.foundation import logs
    from runstate_server.settings import load

    given = load(port=options.port, data_dir=options.data_dir)
    logs.configure(given.log_format, given.log_level)
    folder = given.data_dir or default_data_dir()
    listener = _listen("127.0.0.1", given.port)
    postgres = EmbeddedPostgres(folder, pg_bin=given.pg_bin)
    postgres.start()
    try:
        migrator.migrate(postgres.url)
        settings = load(
            database_url=postgres.url,
            host="127.0.0.1",
            port=given.port,
            workers=1,
            bootstrap_space_id=given.bootstrap_space_id or _DEV_SPACE,
            bootstrap_api_key=given.bootstrap_api_key or _dev_key(folder),
        )
        _print_dev(settings, listener.getsockname()[1], folder)
        _run_server(settings, listener)
    finally:
        postgres.stop()
    return 0


def _dev_key(folder: Path) -> str:
    """The key of this data folder, made at the first start, readable by its owner alone."""
    from runstate_server.foundation import ids

    path = folder / _KEY_FILE
    try:
        return path.read_text("utf-8").strip()
    except FileNotFoundError:
        key = ids.new_api_key()
        partial = path.with_suffix(".new")
        with contextlib.suppress(FileNotFoundError):
            partial.unlink()
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(key + "\n")
        partial.replace(path)
        return key


def _print_dev(settings: "Settings", port: int, folder: Path) -> None:
    key = settings.bootstrap_api_key.get_secret_value() if settings.bootstrap_api_key else ""
    print(f"Runstate serves on http://127.0.0.1:{port} (data in {folder}). Paste this into another shell:\n")
    print(f"  export RUNSTATE_BASE_URL=http://127.0.0.1:{port}")
    print(f"  export RUNSTATE_SPACE_ID={settings.bootstrap_space_id}")
    print(f"  export RUNSTATE_API_KEY={key}\n")
    print("Ctrl-C stops it.", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
