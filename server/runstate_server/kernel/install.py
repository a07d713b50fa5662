"""Gathers the floor's and the rooms' SQL and installs it into a schema named after its content.

Old and new replicas run side by side, each calling the functions it was built with; a rollback needs no
change of the database. The order is the ranks' order: a function may call what stands before it.
"""

import hashlib
import re
from functools import cache
from pathlib import Path
from typing import Any

_PACKAGE = Path(__file__).resolve().parent.parent
_FLOOR = (
    "types",
    "clock",
    "gate",
    "idempotency",
    "leases",
    "epoch",
    "journal",
    "waiters",
    "lanes",
    "replicas",
)
_ROOMS = (
    *("spaces", "mailboxes", "once", "claims", "permits", "allowances", "budgets", "work_limits"),
    *("barriers", "timers", "messages", "tasks", "groups", "scopes", "events", "ops"),
)
_NAME = re.compile(r"\bkernel\.")
_SCHEMA = re.compile(r"runstate_k_[0-9a-f]{12}")


def sources(*, test_clock: bool = False) -> list[Path]:
    """Every kernel file in the order of installation; the test build has another clock."""
    floor = [_PACKAGE / "kernel" / f"{name}.sql" for name in _FLOOR]
    if test_clock:
        floor = [p.with_name("clock_test.sql") if p.name == "clock.sql" else p for p in floor]
    rooms = [_PACKAGE / "primitives" / room for room in _ROOMS]
    due = _PACKAGE / "sweeps" / "due.sql"
    return (
        floor
        + [path for room in rooms for path in sorted(room.glob("kernel*.sql"), key=lambda p: p.stem)]
        + [due]
    )


@cache
def script(*, test_clock: bool = False) -> tuple[str, str]:
    """(schema, SQL): the name of the versioned schema and the script that fills it."""
    text = "\n".join(path.read_text("utf-8") for path in sources(test_clock=test_clock))
    schema = "runstate_k_" + hashlib.sha256(text.encode()).hexdigest()[:12]
    return schema, _NAME.sub(schema + ".", text)


def schema_name(*, test_clock: bool = False) -> str:
    """The schema of this build's functions."""
    return script(test_clock=test_clock)[0]


async def install(connection: Any, *, test_clock: bool = False) -> bool:
    """Install this build's functions in one transaction; returns False when they are there already.
    The caller holds the migrator's lock."""
    schema, sql = script(test_clock=test_clock)
    if await is_installed(connection, schema):
        return False
    async with connection.transaction():
        await connection.execute(f"CREATE SCHEMA {schema}")
        await connection.execute(sql)
    return True


async def is_installed(connection: Any, schema: str) -> bool:
    """Whether the functions of this build are in the database."""
    if not _SCHEMA.fullmatch(schema):
        raise ValueError(f"{schema!r} is no kernel schema")
    return bool(await connection.fetchval("SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1", schema))
