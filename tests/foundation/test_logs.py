"""A log line is one line, carries the request's id, and never a secret."""

import io
import json
import logging

import asyncpg
import pytest

from runstate_server.foundation import logs


@pytest.fixture
def lines():
    """Configure logging as the server does, onto a buffer; afterwards all is as before."""
    root = logging.getLogger()
    before = (root.handlers[:], root.level)
    buffer = io.StringIO()

    def written(log_format, level="info"):
        logs.configure(log_format, level, buffer)
        return lambda: buffer.getvalue().splitlines()

    yield written
    logging.captureWarnings(capture=False)
    root.handlers[:], root.level = before
    logging.getLogger("uvicorn.access").disabled = False


def test_json_is_one_object_per_line_with_the_request_id(lines):
    written = lines("json")
    token = logs.request_id.set("req_7")
    logging.getLogger("runstate.sweeps").info("swept %s\nrows", 3, extra={"sweep": "once_sweep", "count": 3})
    logs.request_id.reset(token)
    (line,) = map(json.loads, written())
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "info",
        "logger": "runstate.sweeps",
        "message": "swept 3\nrows",
        "requestId": "req_7",
        "sweep": "once_sweep",
        "count": 3,
    }


def test_text_is_one_readable_line(lines):
    written = lines("text")
    token = logs.request_id.set("req_7")
    logging.getLogger("runstate.web").warning("two\nlines", extra={"status": 503})
    logs.request_id.reset(token)
    (line,) = written()
    assert line.endswith(r"WARNING runstate.web [req_7] two\nlines status=503")


def test_below_the_level_nothing_is_written(lines):
    written = lines("text", "warning")
    logging.getLogger("runstate").info("quiet")
    assert written() == []


@pytest.mark.parametrize("log_format", ["json", "text"])
@pytest.mark.parametrize(
    "secret",
    [
        "Authorization: Bearer abc.def-ghi",
        "authorization=Basic YWJj",
        '{"Authorization": "Bearer abc.def-ghi"}',
        "bearer abc.def-ghi",
        "rs_live_abc_def-ghi",
        "postgresql://user:abc.def-ghi@host/db",
    ],
)
def test_what_looks_like_a_credential_is_put_out_of_sight(lines, log_format, secret):
    written = lines(log_format)
    logging.getLogger("runstate").info(
        "seen %s", secret, extra={"where": secret, "inside": {"deep": [secret]}}
    )
    logging.getLogger("runstate").error("crash", exc_info=RuntimeError(secret))
    text = "\n".join(written())
    assert "***" in text
    assert not any(part in text for part in ("abc.def", "def-ghi", "YWJj"))


def test_an_operator_s_own_key_is_hidden_once_it_is_known(lines):
    written = lines("text")
    logs.hide("correct-horse-battery")
    logging.getLogger("runstate").info("key correct-horse-battery")
    assert "horse" not in written()[0]


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_an_exception_that_quotes_its_input_is_told_without_its_text(lines, log_format):
    written = lines(log_format)
    for provoke in (
        lambda: json.loads('{"user": payload}'),
        "user payload \ud800".encode,
        bad_parameter,
    ):
        try:
            provoke()
        except Exception:
            logging.getLogger("runstate").exception("crash")
    text = "\n".join(written())
    assert "JSONDecodeError" in text
    assert "UnicodeEncodeError" in text
    assert "sqlstate 22P02" in text
    assert "in bad_parameter" in text
    assert "user payload" not in text


def bad_parameter():
    raise asyncpg.InvalidTextRepresentationError("invalid input for query argument $1: 'user payload'")


def test_uvicorn_speaks_through_the_same_handler_and_keeps_no_access_log(lines):
    written = lines("json")
    logging.getLogger("uvicorn.error").info("Started server process")
    logging.getLogger("uvicorn.access").info("GET /?secret=1")
    assert [json.loads(line)["logger"] for line in written()] == ["uvicorn.error"]
