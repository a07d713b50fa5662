"""Structured logs: one JSON object or one readable line per record, with the request's id.

Promise: no key, token or user payload leaves the process this way. Callers log names, ids and counts as
`extra={...}`; as a second fence every finished line is searched for secrets, and the text of exceptions that
quote their input (drivers, validators, parsers) is left out.
"""

import json
import logging
import re
import sys
import traceback
from collections.abc import Iterator
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

request_id: ContextVar[str | None] = ContextVar("request_id", default=None)

EXCEPTION_TEXT_CHARS_MAX = 500
_FRAMES_MAX = 30
_SECRETS = (
    (re.compile(r"(?i)(authorization[\"']?\s*[:=]\s*[\"']?)(?:(?:bearer|basic)\s+)?[^\s\"',}]+"), r"\1***"),
    (re.compile(r"(?i)(\b(?:bearer|basic)\s+)[^\s\"',}]+"), r"\1***"),
    (re.compile(r"\brs_[A-Za-z0-9_\-]+"), "rs_***"),
    (re.compile(r"(://[^\s:/@\"']*:)[^\s@\"']+@"), r"\1***@"),
)
_hidden: set[str] = set()  # secrets of any shape, made known by hide()
_QUOTING_PACKAGES = {"asyncpg", "json", "pydantic", "pydantic_core", "sqlalchemy"}
_STANDARD = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


def configure(log_format: Literal["json", "text"], level: str, stream: TextIO | None = None) -> None:
    """Send every logger of the process, uvicorn's too, through one handler on standard error."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "uvicorn.asgi", "alembic", "sqlalchemy"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
    logging.getLogger("uvicorn.access").disabled = True  # it prints query strings; the access log is our own
    for chatty in ("alembic", "asyncio", "httpx", "httpcore", "sqlalchemy"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    logging.captureWarnings(capture=True)


class JsonFormatter(logging.Formatter):
    """One JSON object on one line: time, level, logger, message, requestId, the extra fields, exception."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns: the line, without a line end."""
        fields: dict[str, Any] = {
            "time": _instant(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "requestId": request_id.get(),
        }
        fields |= _extra(record)
        if record.exc_info and record.exc_info[1]:
            fields["exception"] = list(_told(record.exc_info[1]))
        return redact(json.dumps(fields, default=str, ensure_ascii=False))


class TextFormatter(logging.Formatter):
    """One line for people: instant, level, logger, [request id], message, key=value; then an exception."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns: the line; only an exception adds more of them, indented."""
        rid = request_id.get()
        parts = [_instant(record), f"{record.levelname:<7}", record.name, *([f"[{rid}]"] if rid else [])]
        parts.append(_one_line(record.getMessage()))
        parts += [f"{key}={_one_line(str(value))}" for key, value in _extra(record).items()]
        lines = [" ".join(parts)]
        if record.exc_info and record.exc_info[1]:
            lines += [f"    {_one_line(line)}" for line in _told(record.exc_info[1])]
        return redact("\n".join(lines))


def hide(secret: str) -> None:
    """Never let this very text out: a key or token of the operator's own choosing."""
    _hidden.add(secret)


def redact(text: str) -> str:
    """The text with everything that looks like a credential put out of sight."""
    for secret in _hidden:
        text = text.replace(secret, "***")
    for pattern, instead in _SECRETS:
        text = pattern.sub(instead, text)
    return text


def _told(error: BaseException) -> Iterator[str]:
    """Type, text where it cannot hold user data, and frames; then the same for what caused it."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        kind = type(current)
        text = "" if kind.__module__.split(".")[0] in _QUOTING_PACKAGES else str(current)
        if isinstance(current, UnicodeError):
            text = ""  # it quotes the object it stumbled on
        state = getattr(current, "sqlstate", None)
        parts = [f"{kind.__module__}.{kind.__qualname__}", f"sqlstate {state}" if state else ""]
        yield ": ".join(part for part in (*parts, text[:EXCEPTION_TEXT_CHARS_MAX]) if part)
        for frame in traceback.extract_tb(current.__traceback__)[-_FRAMES_MAX:]:
            yield f"  at {frame.filename}:{frame.lineno} in {frame.name}"
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)


def _instant(record: logging.LogRecord) -> str:
    instant = datetime.fromtimestamp(record.created, UTC)
    return instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    return {k: v for k, v in vars(record).items() if k not in _STANDARD}


def _one_line(text: str) -> str:
    return (
        text.replace("\\", "\\\\").replace("\r", "\\r").replace("\n", "\\n")
        if "\n" in text or "\r" in text
        else text
    )
