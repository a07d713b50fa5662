"""Settings: an argument, else the environment, else a default. Reads no file and opens no connection."""

import os
import re
import secrets
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from runstate.errors import ConfigError

BASE_URL = "http://localhost:8080"
RUN = "default"
REQUEST_TIMEOUT_MS = 10_000
RETRIES = 2
RETRIES_MAX = 100
TIMEOUT_MS_MAX = 3_600_000
_NAME_CHARS_MAX = 256
_SPACE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_API_KEY = re.compile(r"[!-~]+")  # what an HTTP header carries; a stray newline must fail here, unprinted


@dataclass(frozen=True, kw_only=True)
class Config:
    """What a client works with. The repr leaves out the key."""

    api_key: str = field(repr=False)
    space_id: str
    base_url: str = BASE_URL
    run: str = RUN
    holder: str
    request_timeout_ms: int = REQUEST_TIMEOUT_MS
    retries: int = RETRIES


def resolve_config(
    *,
    api_key: str | None = None,
    space_id: str | None = None,
    base_url: str | None = None,
    run: str | None = None,
    holder: str | None = None,
    request_timeout_ms: int | None = None,
    retries: int | None = None,
) -> Config:
    """Every setting, from its source. Refuses (ConfigError) a missing key or space, and malformed values; it
    names the argument or the variable that is at fault."""
    return Config(
        api_key=check_api_key(*_required("api_key", api_key, "RUNSTATE_API_KEY")),
        space_id=check_space_id(*_required("space_id", space_id, "RUNSTATE_SPACE_ID")),
        base_url=check_base_url(*_setting("base_url", base_url, "RUNSTATE_BASE_URL", BASE_URL)),
        run=check_run(*_setting("run", run, "RUNSTATE_RUN", RUN)),
        holder=check_name("holder", f"worker-{secrets.token_hex(3)}" if holder is None else holder),
        request_timeout_ms=REQUEST_TIMEOUT_MS
        if request_timeout_ms is None
        else check_whole("request_timeout_ms", request_timeout_ms, 1, TIMEOUT_MS_MAX),
        retries=RETRIES if retries is None else check_whole("retries", retries, 0, RETRIES_MAX),
    )


def default_run() -> str:
    """The name of the default run, from the environment."""
    return check_run(*_setting("run", None, "RUNSTATE_RUN", RUN))


def check_api_key(value: Any, what: str = "api_key") -> str:
    """The key as it will stand in a header; the error never shows it."""
    if not isinstance(value, str) or not _API_KEY.fullmatch(value):
        raise ConfigError(f"{what} must be printable ASCII without spaces or line ends")
    return value


def check_space_id(value: Any, what: str = "space_id") -> str:
    """A space id: 1 to 64 of A-Z a-z 0-9 . _ -"""
    if not isinstance(value, str) or not _SPACE_ID.fullmatch(value):
        raise ConfigError(f"{what} must be 1 to 64 characters of A-Z a-z 0-9 . _ -, not {value!r}")
    return value


def check_base_url(value: Any, what: str = "base_url") -> str:
    """An absolute http(s) URL without user, query or fragment, without its trailing slash. The error does not
    show it, for it may hold a password."""
    wrong = _wrong_with_url(value)
    if wrong is not None:
        raise ConfigError(f"{what} must be like http://localhost:8080: it {wrong}")
    scheme, rest = str(value).split(":", 1)
    return f"{scheme.lower()}:{rest}".rstrip("/?#")


def _wrong_with_url(value: Any) -> str | None:
    if not isinstance(value, str):
        return "is no string"
    try:
        parts = urlsplit(value)
        parts.port  # noqa: B018 - reading it is what checks it
    except ValueError:
        return "has no usable host or port"
    faults = {
        "has white space in it": re.search(r"\s", value) is not None,
        "does not begin with http:// or https://": parts.scheme not in {"http", "https"},
        "has no host": not parts.hostname,
        "has a user or password; the key goes into api_key": "@" in parts.netloc,
        "has a query or fragment": bool(parts.query or parts.fragment),
    }
    return next((fault for fault, is_so in faults.items() if is_so), None)


def check_run(value: Any, what: str = "run") -> str:
    """The name of a run."""
    return check_name(what, value)


def check_name(what: str, value: Any, chars_max: int = _NAME_CHARS_MAX) -> str:
    """A name, key or holder as the server takes it: 1 to `chars_max` characters, no NUL, no surrogates."""
    if not isinstance(value, str) or not 1 <= len(value) <= chars_max:
        raise ConfigError(f"{what} must be a string of 1 to {chars_max} characters, not {value!r}")
    if "\0" in value or any("\ud800" <= char <= "\udfff" for char in value):
        raise ConfigError(f"{what} must not contain NUL or surrogates")
    return value


def check_whole(what: str, value: Any, least: int, most: int) -> int:
    """A whole number within its bounds; True and False are none."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ConfigError(f"{what} must be a whole number from {least} to {most}, not {value!r}")
    return value


def check_number(what: str, value: Any, least: float, most: float) -> float:
    """A number within its bounds; True and False are none."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not least <= value <= most:
        raise ConfigError(f"{what} must be a number from {least:g} to {most:g}, not {value!r}")
    return value


def _setting(what: str, given: Any, variable: str, default: Any = None) -> tuple[Any, str]:
    """The value, and where it comes from. A blank variable counts as unset."""
    if given is None:
        found = os.environ.get(variable, "").strip()
        return (found, variable) if found else (default, what)
    if isinstance(given, str) and not given.strip():
        raise ConfigError(f"{what} was given as a blank string")
    return given, what


def _required(what: str, given: Any, variable: str) -> tuple[Any, str]:
    value, source = _setting(what, given, variable)
    if value is None:
        raise ConfigError(f"{what} is missing: pass {what}= or set {variable}")
    return value, source
