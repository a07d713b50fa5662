"""What ails a database, told from a defect; connections that notice a dead wire."""

import asyncio
import socket

import asyncpg
import pytest
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from runstate_server.foundation import bounds, db
from runstate_server.foundation.db import Trouble
from tests.support import database
from tests.support.proxy import RoundRobin, database_socket, database_through

TROUBLES = {
    Trouble.LOST: ["08000", "08003", "08006", "08P01", "57P01", "57P02", "57P03", "57P05"],
    Trouble.UNFIT: ["25006", "28000", "28P01", "3D000", "3F000", "42P01", "42703", "57P04"],
    Trouble.FULL: ["53000", "53100", "53200", "53300", "53400", "58000", "58030"],
    Trouble.BUSY: ["40001", "40P01", "55P03", "57014"],
    None: ["22003", "22P02", "23505", "42501", "42883", "42601", "P0001", "XX000", "55000"],
}


def said(state):
    """The driver's error of that SQLSTATE."""
    return asyncpg.PostgresError.new({"C": state, "M": "text"})


@pytest.mark.parametrize(
    ("state", "kind"), [(state, kind) for kind, states in TROUBLES.items() for state in states]
)
def test_what_time_may_clear_is_told_from_defects_by_its_state(state, kind):
    error = said(state)
    assert error.sqlstate == state
    assert db.trouble(error) is kind
    wrapped = DBAPIError("SELECT", {}, RuntimeError())
    wrapped.orig.__cause__ = error
    assert db.trouble(wrapped) is kind


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError(),
        ConnectionResetError(),
        FileNotFoundError(),  # of the socket
        TimeoutError(),
        PoolTimeoutError(),
        asyncpg.InterfaceError("connection is closed"),
        asyncpg.ConnectionDoesNotExistError("gone"),
        asyncpg.InternalClientError("got result for unknown protocol state"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_lost_connection_is_known_in_every_form_that_it_takes(error):
    assert db.trouble(error) is Trouble.LOST


@pytest.mark.parametrize("error", [ValueError(), asyncpg.DataError("x"), KeyError(), AssertionError()])
def test_a_defect_is_no_trouble_of_the_database(error):
    assert db.trouble(error) is None


def test_what_the_log_is_told_of_an_error_holds_no_text_of_it():
    assert db.named(said("53300")) == "TooManyConnectionsError 53300"
    assert db.named(ConnectionRefusedError("secret")) == "ConnectionRefusedError"


def test_a_wire_on_which_nothing_is_acknowledged_is_given_up_in_time(database_url):
    async def options(url):
        connection = await db.connect(url)
        try:
            wire = connection._transport.get_extra_info("socket")
            return wire.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
        finally:
            await connection.close()

    with RoundRobin([database_socket(database_url)]) as wire:
        told = database.blocking(options(database_through(wire, database_url)))
    assert told == bounds.unacknowledged_ms_max


def test_a_statement_without_an_answer_costs_its_connection_and_makes_the_others_new(database_url):
    async def pids():
        pool = await db.open_pool(database_url, size=2, named_statements=True)
        try:
            async with (
                db.borrowed(pool, within_s=30) as one,
                db.borrowed(pool, within_s=30) as other,
            ):
                before = {await one.fetchval("SELECT pg_backend_pid()")}
                before |= {await other.fetchval("SELECT pg_backend_pid()")}
            with pytest.raises(TimeoutError):
                async with db.borrowed(pool, within_s=30) as one:
                    await one.fetchval("SELECT pg_sleep(60)", timeout=0.1)
            async with (
                db.borrowed(pool, within_s=30) as one,
                db.borrowed(pool, within_s=30) as other,
            ):
                after = {await one.fetchval("SELECT pg_backend_pid()")}
                after |= {await other.fetchval("SELECT pg_backend_pid()")}
            return before, after
        finally:
            await asyncio.wait_for(pool.close(), 30)

    before, after = database.blocking(pids())
    assert len(before) == len(after) == 2
    assert not before & after
