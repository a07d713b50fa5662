import time

import httpx
import pytest

import runstate
from runstate import ConfigError
from runstate.decorators import queue as queue_module
from tests.sdk.peer import DROP, Answer, Peer
from tests.sdk.workers import Gate, Ran, working


@pytest.fixture(autouse=True)
def no_queues():
    """No queue is defined in this process yet."""
    queue_module.defined.clear()


# ------------------------------------------------------------------------------ how many at once


def test_a_queue_runs_as_many_jobs_at_once_as_it_says_and_queues_do_not_wait_for_each_other(here):
    run, three, one = here.run(), Gate(), Gate()
    run.queue("three", concurrency=3)(three)
    run.queue("one")(one)
    jobs = [run.queue(name).send(i) for i in range(4) for name in ("three", "one")]
    with working(run):
        three.entered(3)
        one.entered()
        three.release.set()
        one.release.set()
        assert [job.result(timeout=60) for job in jobs] == [[i, 1] for i in range(4) for _ in range(2)]
    assert (three.most, one.most) == (3, 1)


def test_concurrency_caps_the_process_and_busy_queues_take_turns(here):
    run, order = here.run(), []
    for name in ("a", "b"):
        run.queue(name, concurrency=5)(lambda given, name=name: order.append(name))
    jobs = [run.queue(name).send(i) for name in ("a", "b") for i in range(6)]
    with working(run, concurrency=1):
        for job in jobs:
            assert job.result(timeout=60) is None
            assert job.status()["attempt"] == 1
    assert order in (["a", "b"] * 6, ["b", "a"] * 6)


def test_work_that_comes_to_an_idle_queue_of_a_full_process_goes_back_at_once(here):
    run, gate = here.run(), Gate()
    run.queue("a")(gate)
    run.queue("b")(gate)
    with working(run, concurrency=1):
        time.sleep(0.5)  # both queues are waiting by now; the promise holds either way
        first = run.queue("a").send(1)
        gate.entered()
        second = run.queue("b").send(2)
        other = here.run(worker="other")
        other.queue("b")(Ran())
        with working(other, queues="b"):
            assert second.result(timeout=30) == {"got": 2}
        assert second.status()["attempt"] == 1
        gate.release.set()
        assert first.result(timeout=30) == [1, 1]
    assert gate.most == 1


def test_queues_chooses_which_are_served(here):
    run = here.run()
    a, b = run.queue("a")(Ran()), run.queue("b")(Ran())
    for chosen in ("a", ["a"], a, [run.queue("a")]):
        with working(run, queues=chosen):
            assert a(repr(chosen)) == {"got": repr(chosen)}
    assert b.send(1).status()["state"] == "QUEUED"
    for wrong in ("c", [], [run.queue("c")]):
        with pytest.raises(ConfigError):
            run.serve(queues=wrong)


def test_a_process_without_queues_has_nothing_to_serve(here):
    with pytest.raises(ConfigError, match="no queue"):
        runstate.serve()
    runstate.queue("for-producers")
    with pytest.raises(ConfigError, match="no queue"):
        runstate.serve()
    for wrong in (0, "many", True):
        with pytest.raises(ConfigError, match="concurrency"):
            here.run().serve(concurrency=wrong, queues=here.run().queue("a")(Ran()))


# ------------------------------------------------------------------------------ jobs and their context


def test_jobs_of_child_scopes_are_taken_too_and_run_as_theirs(here):
    run = here.run()
    run.queue("where")(lambda given: [runstate.context().run.id, runstate.context().run.name])
    named, nameless = run.child(name="part"), run.child()
    grandchild = named.child(name="deep")
    with working(run):
        for below, name in ((named, "part"), (nameless, None), (grandchild, "deep"), (named, "part")):
            assert below.queue("where")(time.time()) == [below.run_id(), name]


def test_leases_are_renewed_whatever_the_handler_does_to_its_loop(here):
    run = here.run()

    @run.queue("blocking", lease=1)
    async def blocking(given):
        time.sleep(2.5)  # noqa: ASYNC251 - that is the point
        return runstate.context().attempt

    @run.queue("plain", lease=1)
    def plain(given):
        ends_at = time.monotonic() + 2.5
        while time.monotonic() < ends_at:
            pass
        return runstate.context().attempt

    with working(run):
        jobs = [blocking.send(1), plain.send(1)]
        assert [job.result(timeout=60) for job in jobs] == [1, 1]


def test_a_job_that_comes_after_a_long_wait_has_its_whole_lease(here):
    run = here.run()

    @run.queue("work", lease=1)
    def work(given):
        return [runstate.context().attempt, runstate.context().signal.wait(1.5)]

    with working(run):
        time.sleep(1.5)  # longer than the lease, in one long poll
        assert work(1) == [1, False]


def test_a_reply_that_is_lost_does_not_lose_the_job(here):
    """The answer to the admit is dropped on its way; the next request finds the same lease."""
    lost = []

    def forward(request):
        answer = httpx.request(
            request.method,
            here.url + request.path,
            content=request.body,
            headers={
                k: request.headers[k] for k in ("authorization", "idempotency-key") if k in request.headers
            },
            timeout=60,
            trust_env=False,
        )
        if request.path.endswith("/admit") and answer.status_code == 200 and len(lost) < 2:
            lost.append(request.headers["idempotency-key"])
            return DROP
        return Answer(answer.status_code, answer.content)

    with Peer(forward) as peer:
        run = here.run(base_url=peer.url)
        queue = run.queue("work", lease=30)(lambda given: [given, runstate.context().attempt])
        job = here.run().queue("work").send("a")
        with working(run, queues=queue):
            assert job.result(timeout=20) == ["a", 1]
    assert lost[0] == lost[1]
