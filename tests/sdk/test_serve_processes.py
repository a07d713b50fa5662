"""Workers in processes of their own, stopped, killed and paused."""

import os
import re
import signal
import subprocess
import sys
import threading
import time

import pytest

from runstate import TaskFailedError
from tests.sdk.conftest import Here
from tests.sdk.workers import Call, open_polls, until_polls
from tests.support import sources, spaces
from tests.support.processes import Python, Replica, environment

pytestmark = pytest.mark.processes

# What every worker of this file runs. A handler says where it is, and waits for a file to come, or for ever.
WORKER = """
import logging, os, sys, threading, time
import runstate
from runstate.decorators import serve
logging.basicConfig(level=logging.CRITICAL)
given = lambda name, default: type(default)(os.environ.get(name, default))
serve._SHUTDOWN_S_MAX = given("SHUTDOWN_S", 30.0)

@runstate.queue(
    "work", lease=given("LEASE_S", 30.0), concurrency=given("SIDE", 1), attempts=given("ATTEMPTS", 5)
)
def work(given):
    context = runstate.context()
    print("inside", given, context.attempt, flush=True)
    if given.startswith("quick"):
        return [given, context.attempt]
    while not os.path.exists(given):
        time.sleep(0.02)
    print("leaving", given, context.signal.is_set(), flush=True)
    return [given, context.attempt, os.getpid()]

print("serving", flush=True)
try:
    runstate.serve()
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.exit(7)
print("served", flush=True)
"""


def worker(here, **variables):
    return Python(WORKER, env=here.environment | variables)


def leave(each, number=signal.SIGTERM, within_s=20):
    """Sends the signal; what was left of the worker's output. It must end well, and in silence."""
    each.process.send_signal(number)
    out, err = each.process.communicate(timeout=within_s)
    assert (each.process.returncode, err) == (0, "")
    return out


def state_of(job):
    view = job.status()
    return view["state"], view["attempt"]


def test_a_killed_worker_s_job_is_taken_over_with_the_next_attempt(here, tmp_path):
    release = tmp_path / "go"
    queue = here.run().queue("work")
    with worker(here, LEASE_S="1.5") as first, worker(here, LEASE_S="1.5") as second:
        job = queue.send(str(release))
        waiting = [Call(lambda: here.run().queue("work")(str(release))) for _ in range(3)]
        lines = {
            first: Call(lambda: first.until_line("inside")),
            second: Call(lambda: second.until_line("inside")),
        }
        while all(each.alive for each in lines.values()):
            time.sleep(0.02)
        owner, other = (first, second) if not lines[first].alive else (second, first)
        assert lines[owner].result.endswith(" 1")
        owner.kill()
        assert lines[other].result.endswith(" 2")
        release.touch()
        assert job.result(timeout=30) == [str(release), 2, other.pid]
        assert [call.result for call in waiting] == [[str(release), 2, other.pid]] * 3


def test_a_job_whose_workers_are_all_killed_ends_dead_and_its_callers_are_told(here, tmp_path):
    job = here.run().queue("work").send(str(tmp_path / "never"))
    for attempt in (1, 2):
        with worker(here, LEASE_S="1", ATTEMPTS="2") as killed:
            assert killed.until_line("inside").endswith(f" {attempt}")
            killed.kill()
    with worker(here, LEASE_S="1", ATTEMPTS="2") as last:
        last.until_line("serving")
        with pytest.raises(TaskFailedError) as caught:
            job.result(timeout=30)
    assert caught.value.reason == "lease_expired"
    assert state_of(job) == ("FAILED", 2)


def test_a_worker_paused_past_its_lease_loses_the_job_and_its_late_result_is_dropped(here, tmp_path):
    release = tmp_path / "go"
    queue = here.run().queue("work")
    with worker(here, LEASE_S="1.5") as paused:
        job = queue.send(str(release))
        assert paused.until_line("inside").endswith(" 1")
        os.kill(paused.pid, signal.SIGSTOP)
        with worker(here, LEASE_S="1.5") as second:
            assert second.until_line("inside").endswith(" 2")
            release.touch()
            found = job.result(timeout=30)
            assert found == [str(release), 2, second.pid]
            second.kill()
        os.kill(paused.pid, signal.SIGCONT)
        assert paused.until_line("leaving").endswith(" True")  # its signal says so at once
        assert queue.send("quick").result(timeout=30) == ["quick", 1]  # and it goes on with the next job
        assert job.result(timeout=30) == found
        assert "served" in leave(paused)


def test_a_worker_paused_while_it_waits_begins_nothing_that_has_gone(here, tmp_path):
    queue = here.run().queue("work")
    before = open_polls(here.url)
    with worker(here, LEASE_S="1") as paused:
        until_polls(here.url, before + 1)
        os.kill(paused.pid, signal.SIGSTOP)
        job = queue.send("quick 2")
        while state_of(job) != ("RUNNING", 1):  # given to a process that stands still
            time.sleep(0.02)
        time.sleep(1.2)
        with worker(here, LEASE_S="1") as second:
            assert job.result(timeout=30) == ["quick 2", 2]
            os.kill(paused.pid, signal.SIGCONT)
            assert queue.send("quick 3").result(timeout=30)[0] == "quick 3"
            out = leave(paused) + leave(second)
    assert "inside quick 2 1" not in out
    assert out.count("inside quick 2") == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_hands_back_what_does_not_end_without_costing_an_attempt(here, tmp_path, number):
    release = tmp_path / "go"
    job = here.run().queue("work").send(str(release))
    with worker(here, SHUTDOWN_S="1", ATTEMPTS="1") as first:
        assert first.until_line("inside").endswith(" 1")
        assert leave(first, number) == "served\n"
        assert state_of(job) == ("QUEUED", 0)
    with worker(here, ATTEMPTS="1") as second:
        assert second.until_line("inside").endswith(" 1")
        release.touch()
        assert job.result(timeout=30) == [str(release), 1, second.pid]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_running_handlers_end_and_takes_no_new_job(here, tmp_path, number):
    release = tmp_path / "go"
    queue = here.run().queue("work")
    with worker(here) as first:
        running, waiting = queue.send(str(release)), queue.send("quick")
        first.until_line("inside")
        first.process.send_signal(number)
        time.sleep(0.5)
        assert first.process.poll() is None
        release.touch()
        assert running.result(timeout=30) == [str(release), 1, first.pid]
        assert first.end(within_s=15).endswith("served\n")
    assert state_of(waiting) == ("QUEUED", 0)


def test_a_second_interrupt_ends_it_at_once_and_still_hands_back(here, tmp_path):
    job = here.run().queue("work").send(str(tmp_path / "never"))
    with worker(here) as first:
        first.until_line("inside")
        first.process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        assert first.process.poll() is None
        started = time.monotonic()
        first.process.send_signal(signal.SIGINT)
        assert first.process.wait(10) == 7
        assert time.monotonic() - started < 5
        assert first.process.stdout.read() == "interrupted\n"
        assert first.process.stderr.read() == ""
    assert state_of(job) == ("QUEUED", 0)


def test_an_idle_worker_leaves_at_once_on_sigterm(here):
    with worker(here) as first:
        assert here.run().queue("work")("quick") == ["quick", 1]
        started = time.monotonic()
        assert leave(first).endswith("served\n")
        assert time.monotonic() - started < 5


def test_signals_that_come_while_work_comes_lose_no_attempt(here):
    """Whatever the worker was doing, asking, getting, working: no job waits for a lease to lapse."""
    queue = here.run().queue("work")
    jobs = [queue.send(f"quick {i}") for i in range(300)]
    for _ in range(4):
        with worker(here, SIDE="3") as each:
            each.until_line("inside")
            leave(each)
    with worker(here, SIDE="8") as last:
        last.until_line("serving")
        assert [job.result(timeout=60) for job in jobs] == [[f"quick {i}", 1] for i in range(300)]


def test_a_worker_ends_with_its_run(here):
    with worker(here) as first:
        assert here.run().queue("work")("quick") == ["quick", 1]
        here.run().stop()
        assert first.end(within_s=15).endswith("served\n")


def test_workers_and_producers_outlive_a_server_that_restarts(fresh_database, tmp_path):
    space = spaces.create(fresh_database)
    release = tmp_path / "go"
    with Replica(fresh_database) as replica:
        place = Here(replica.url, space.id, space.key)
        with worker(place, SIDE="2", LEASE_S="20") as first, worker(place, SIDE="2", LEASE_S="20") as second:
            queue = place.run().queue("work")
            job = queue.send(str(release))
            waiting = [Call(job.result), Call(lambda: place.run().queue("work")(str(release)))]
            while state_of(job) != ("RUNNING", 1):
                time.sleep(0.02)
            for stop in (replica.stop, replica.kill):
                stop()
                during = Call(lambda: place.run().queue("work")("quick during"))
                time.sleep(1)
                replica.start()
                assert during.result == ["quick during", 1]
            release.touch()
            for call in waiting:
                assert call.result[:2] == [str(release), 1]
            for each in (first, second):
                assert "served" in leave(each)


def test_many_workers_and_producers_record_each_job_once(here):
    """Four workers, killed now and then: every job has one result, whoever asks for it."""
    names = [f"quick {i}" for i in range(60)]
    results = {}
    with worker(here, LEASE_S="1", SIDE="2") as steady, worker(here, LEASE_S="1", SIDE="2") as also:

        def produce(share):
            queue = here.run().queue("work")
            for name in share:
                results.setdefault(name, []).append(queue(name)[0])

        producers = [threading.Thread(target=produce, args=(names,)) for _ in range(4)]
        for each in producers:
            each.start()
        for _ in range(3):
            with worker(here, LEASE_S="1", SIDE="2") as victim:
                victim.until_line("serving")
                time.sleep(0.3)
                victim.kill()
        for each in producers:
            each.join(120)
        assert steady.process.poll() is also.process.poll() is None
    assert results == {name: [name] * 4 for name in names}


FORGETFUL = """
import os, threading, time
import runstate

@runstate.queue("work")
def work(given):
    os.write(1, b"inside\\n")
    time.sleep(60)

@runstate.queue("coroutine")
async def coroutine(given):
    os.write(1, b"inside\\n")
    time.sleep(60)

def consume():
    with runstate.Runstate() as rs:
        rs.mailboxes.ensure("more")
        os.write(1, b"consuming\\n")
        rs.scope(runstate.run_id()).mailbox("more").consume(print)

for target in (runstate.serve, consume):
    threading.Thread(target=target, daemon=True).start()
jobs = work.send(1), coroutine.send(1)
rs = runstate.Runstate()
lease = rs.scope(runstate.run_id()).claim("a").acquire()
input()
print("leaving", flush=True)
"""


def test_a_process_that_forgets_its_workers_ends_in_time_and_in_silence(here):
    with Python(FORGETFUL, env=here.environment) as program:
        assert sorted(program.line() for _ in range(3)) == ["consuming", "inside", "inside"]
        program.tell("")
        assert program.line() == "leaving"
        started = time.monotonic()
        out, err = program.process.communicate(timeout=30)
        assert (program.process.returncode, out, err) == (0, "", "")
        assert time.monotonic() - started < 15


def test_a_child_after_fork_is_a_worker_of_its_own(here):
    program = """
import os, sys
import runstate

@runstate.queue("work")
def work(given):
    return os.getpid()

job = work.send(1)
child = os.fork()
if child == 0:
    stop = runstate.ThreadSafeEvent()
    import threading
    threading.Thread(target=lambda: (job.result(), work(2), stop.set())).start()
    runstate.serve(signal=stop)
    sys.exit(0)
assert job.result() == work(2) == child
assert os.waitpid(child, 0)[1] == 0
"""
    with Python(program, env=here.environment) as parent:
        assert parent.end() == ""
        assert parent.process.returncode == 0


def test_the_readme_s_queue_is_done_by_one_worker_and_printed_by_all(here, tmp_path):
    part = (sources.ROOT / "README.md").read_text().split("## Queues, in Python")[1]
    program, script, promised = (
        re.search(rf"```{language}\n(.*?)```", part, re.DOTALL)[1] for language in ("python", "sh", "text")
    )
    (tmp_path / "research.py").write_text(program)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    done = subprocess.run(
        ["sh", "-eu", "-c", script],
        cwd=tmp_path,
        env=environment(**here.environment),
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    by = re.search(r"'by': (\d+)", done.stdout)[1]
    assert done.stdout == promised.replace("4713", by)
