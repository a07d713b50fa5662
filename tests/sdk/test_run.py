import asyncio
import datetime as dt
import threading
from collections import deque

import pytest

import runstate
from runstate import ConfigError, StoppedError, UnavailableError


def effective(here, scope_id):
    with runstate.Runstate(**here.settings) as rs:
        return rs.scope(scope_id).status()["effective"]


def test_missing_settings_are_a_config_error_at_the_first_call(here, monkeypatch):
    monkeypatch.delenv("RUNSTATE_API_KEY")
    run = runstate.run("x")
    with pytest.raises(ConfigError, match="RUNSTATE_API_KEY"):
        run.run_id()
    with pytest.raises(ConfigError, match="RUNSTATE_API_KEY"):
        run.once(name="f")(lambda: 1)()


def test_everybody_who_names_a_run_is_in_it(here):
    assert runstate.run_id() == here.run().run_id() == runstate.run("default").run_id()
    assert asyncio.run(runstate.arun_id()) == runstate.run_id()
    assert runstate.run("other").run_id() != runstate.run_id()


def test_the_default_run_is_named_by_the_environment_or_by_configure(here, monkeypatch):
    monkeypatch.setenv("RUNSTATE_RUN", "nightly")
    assert runstate.run_id() == here.run("nightly").run_id()
    runstate.configure(run="weekly")
    assert runstate.run_id() == here.run("weekly").run_id()
    runstate.configure(retries=1)
    assert runstate.run_id() == here.run("weekly").run_id()


def test_first_calls_at_the_same_time_share_one_request(here):
    run = runstate.run("crowd")
    ids = []
    threads = [threading.Thread(target=lambda: ids.append(run.run_id())) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ids == [run.run_id()] * 20


@pytest.mark.parametrize("end", ["stop", "finish"])
@pytest.mark.parametrize("how", ["plain", "async"])
def test_an_ended_run_stays_ended_for_its_object_and_a_new_one_starts_fresh(here, end, how):
    first = runstate.run_id()
    other = here.run()
    assert other.run_id() == first
    getattr(runstate, end)() if how == "plain" else asyncio.run(getattr(runstate, f"a{end}")())

    assert effective(here, first) == {"stop": "CANCELLED", "finish": "COMPLETED"}[end]
    for call in (runstate.run_id, runstate.stop, runstate.finish, runstate.child):
        with pytest.raises(StoppedError):
            call()
    with pytest.raises(StoppedError) as caught:
        asyncio.run(runstate.achild())
    assert (caught.value.status, caught.value.code) == (0, "SCOPE_CANCELLED")

    fresh = runstate.run("default")
    assert fresh.run_id() != first
    runstate.configure()
    assert runstate.run_id() == fresh.run_id()


def test_a_run_ended_elsewhere_is_noticed_by_the_next_call_and_remembered(here):
    mine, theirs = here.run(), here.run()
    assert mine.run_id() == theirs.run_id()
    theirs.finish()
    with pytest.raises(StoppedError):
        mine.child()
    with pytest.raises(StoppedError):
        mine.run_id()


def test_ending_a_run_that_ended_the_other_way_says_that_it_has_ended(here):
    mine, theirs = here.run(), here.run()
    mine.run_id()
    theirs.stop()
    with pytest.raises(StoppedError):
        mine.finish()


def test_ending_it_twice_the_same_way_from_two_processes_is_no_error(here):
    mine, theirs = here.run(), here.run()
    assert mine.run_id() == theirs.run_id()
    theirs.stop()
    mine.stop()


def test_a_child_ends_with_its_parent_but_not_the_other_way(here):
    parent = here.run()
    first, second = parent.child(name="part", deadline="2100-01-01T00:00:00Z"), asyncio.run(parent.achild())
    assert (first.name, second.name) == ("part", None)
    first.stop()
    assert effective(here, second.run_id()) == "ACTIVE"
    parent.stop()
    with pytest.raises(StoppedError):
        second.run_id()


def test_a_run_past_its_deadline_is_a_stopped_run(here):
    run = here.run("short")
    run._deadline = dt.datetime.now(dt.timezone.utc) + dt.timedelta(seconds=1)
    run.child()
    with pytest.raises(StoppedError) as caught:
        deque(iter(run.child, None), maxlen=0)
    assert caught.value.code == "DEADLINE_EXCEEDED"


def test_a_deadline_counts_for_the_call_that_starts_the_run(here):
    deadline = dt.datetime(2100, 1, 1, tzinfo=dt.timezone.utc)
    scope_id = runstate.run("dated", deadline=deadline).run_id()
    assert runstate.run("dated", deadline="2200-01-01T00:00:00Z").run_id() == scope_id
    with runstate.Runstate(**here.settings) as rs:
        assert rs.scope(scope_id).status()["deadline"] == "2100-01-01T00:00:00.000Z"
    with pytest.raises(ConfigError, match="time zone"):
        runstate.run("naive", deadline=dt.datetime(2100, 1, 1)).run_id()  # noqa: DTZ001 - that is the mistake


@pytest.mark.parametrize("name", ["", "x" * 257, "a\0b", None, 7])
def test_a_run_needs_a_name_the_server_takes(name):
    with pytest.raises(ConfigError):
        runstate.run(name)


@pytest.mark.parametrize("name", ["a/b", "..", "%2F", "é ~", "x" * 256])
def test_any_name_is_one_run(here, name):
    assert here.run(name).run_id() == here.run(name).run_id() != here.run("other").run_id()


def test_a_server_that_is_away_is_unavailable_for_calls_that_do_not_wait():
    runstate.configure(api_key="k", space_id="s", base_url="http://127.0.0.1:1", retries=0)
    with pytest.raises(UnavailableError) as caught:
        runstate.run("x").run_id()
    assert caught.value.status == 0


def test_the_holder_of_the_decorators_names_host_and_process(here):
    import os
    import socket

    assert here.run().account.client()._space.holder()["holder"] == f"{socket.gethostname()}-{os.getpid()}"
    assert here.run(worker="w-1").account.client()._space.holder()["holder"] == "w-1"
