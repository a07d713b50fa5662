import asyncio
import threading

import pytest
import uvloop

import runstate
from runstate import ConfigError, OnceFailedError
from runstate.run import RunRef
from tests.sdk.callers import Company, Ran, in_thread, outcome, together


def test_the_function_runs_once_and_everybody_gets_its_result(here):
    ran = Ran()
    entered = threading.Event()

    def work(name):
        entered.wait(0.2)
        return ran(name)

    runs = [here.run() for _ in range(4)]
    faces = [run.once(name="work")(work) for run in runs]
    calls = iter(faces * 5)
    assert together(20, lambda: next(calls)("acme")) == [{"args": ["acme"]}] * 20
    assert ran == [("acme",)]
    assert faces[0](name="acme") == {"args": ["acme"]}
    assert ran == [("acme",)]


def test_callers_with_other_arguments_do_not_wait(here):
    inside = threading.Event()
    release = threading.Event()

    @runstate.once
    def work(name):
        if name == "slow":
            inside.set()
            assert release.wait(30)
        return name

    slow = in_thread(lambda: work("slow"))
    assert inside.wait(30)
    assert work("fast") == "fast"
    assert slow.is_alive()
    release.set()
    slow.join(30)
    assert slow.outcome == "slow"


def test_async_functions_are_awaited_on_the_callers_loop(here):
    ran = Ran()

    @runstate.once
    async def work(name, *, depth=1):
        loop = asyncio.get_running_loop()
        await asyncio.sleep(0.05)
        assert loop is main_loop
        return ran(name, depth)

    async def main():
        nonlocal main_loop
        main_loop = asyncio.get_running_loop()
        return await asyncio.gather(*[work("a") for _ in range(10)], work("a", depth=2), work(name="a"))

    main_loop = None
    results = asyncio.run(main())
    assert results == [{"args": ["a", 1]}] * 10 + [{"args": ["a", 2]}, {"args": ["a", 1]}]
    assert sorted(ran) == [("a", 1), ("a", 2)]


def test_a_plain_function_works_where_a_loop_is_running(here):
    @runstate.once
    def work(name):
        assert asyncio.get_running_loop()
        assert runstate.context().signal.wait(0.01) is False
        return name

    async def notebook_cell():
        return work("a")

    assert asyncio.run(notebook_cell()) == "a"


def test_plain_and_async_work_under_uvloop(here):
    @runstate.once
    async def work(name):
        signal = runstate.context().signal
        assert await signal.wait(0.01) is False
        return name

    @runstate.once
    def plain(name):
        return name

    async def main():
        assert isinstance(asyncio.get_running_loop(), uvloop.Loop)
        return await asyncio.gather(work("a"), work("a")), plain("b")

    loop = uvloop.new_event_loop()
    try:
        assert loop.run_until_complete(main()) == (["a", "a"], "b")
    finally:
        loop.close()


def test_each_event_loop_in_turn_can_use_the_same_function(here):
    @runstate.once
    async def work(name):
        return name

    assert [asyncio.run(work(f"n{i % 2}")) for i in range(4)] == ["n0", "n1", "n0", "n1"]


def test_the_owner_gets_what_everybody_else_gets(here):
    @runstate.once
    def work():
        return {"pair": (1, 2), "text": "é\u2028\u0000", "big": 2**80, "float": 1e16}

    expected = {"pair": [1, 2], "text": "é\u2028\u0000", "big": 2**80, "float": 1e16}
    assert work() == expected
    assert work() == expected


@pytest.mark.parametrize("result", [None, False, 0, "", [], {}])
def test_every_json_value_is_a_result(here, result):
    ran = Ran()

    @runstate.once
    def work():
        ran()
        return result

    assert work() == result
    assert work() == result
    assert len(ran) == 1


def test_context_says_which_call_this_is(here):
    @runstate.once(name="look", key=lambda name: name)
    def work(name):
        context = runstate.context()
        assert context.run == RunRef(runstate.run_id(), "default")
        assert not context.signal.is_set()
        assert context.signal.reason is None
        context.signal.raise_if_set()
        return [context.attempt, context.key]

    assert runstate.context() is None
    assert work("k") == [1, "look:k"]
    assert runstate.context() is None


def test_nested_calls_have_contexts_of_their_own(here):
    @runstate.once
    def inner():
        return runstate.context().key

    @runstate.once
    def outer():
        inside = inner()
        return [inside, runstate.context().key]

    first, second = outer()
    assert (first.partition(":")[0], second.partition(":")[0]) == ("inner", "outer")


def test_a_call_from_inside_itself_is_refused_instead_of_waiting_for_itself(here):
    @runstate.once(attempts=1)
    def work(n):
        return work(n)

    with pytest.raises(OnceFailedError, match="inside itself"):
        work(1)


def test_key_decides_what_is_the_same_work(here):
    ran = Ran()

    @runstate.once(name="research", key=lambda company, http: company.name)
    def research(company, http):
        return ran(company.name)

    assert research(Company("acme"), object()) == research(Company("acme"), http=object())
    assert len(ran) == 1


@pytest.mark.parametrize("key", ["", "x" * 256, None, 7, "a\0b"])
def test_a_key_must_be_a_usable_string(here, key):
    @runstate.once(key=lambda: key)
    def work():
        raise AssertionError

    with pytest.raises(ConfigError, match="what key= returns"):
        work()


def test_the_longest_name_and_key_are_accepted(here):
    @runstate.once(name="n" * 256, key=lambda: "k" * 255)
    def work():
        return len(runstate.context().key)

    assert work() == 512


def test_an_argument_that_is_not_json_is_a_config_error_that_names_it(here):
    @runstate.once
    def work(company, client=None):
        raise AssertionError

    assert isinstance(outcome(lambda: work(Company("acme"), client=object())), ConfigError)
    with pytest.raises(ConfigError, match="argument client is of type object"):
        work(Company("acme"), client=object())
    with pytest.raises(ConfigError, match="argument company is an integer"):
        work(2**53 + 1)
    with pytest.raises(TypeError):
        work()


@pytest.mark.parametrize(
    "options",
    [
        {"name": ""},
        {"name": "x" * 257},
        {"key": "name"},
        {"attempts": 0},
        {"attempts": 101},
        {"attempts": 1.0},
        {"attempts": True},
        {"lease": 0.5},
        {"lease": "2h"},
        {"lease": "soon"},
        {"lease": None},
    ],
    ids=str,
)
def test_options_it_cannot_use_are_refused_where_the_function_is_defined(options):
    with pytest.raises(ConfigError):
        runstate.once(**options)


def test_what_cannot_be_done_once_is_refused_where_it_is_defined():
    def generator():
        yield 1

    async def async_generator():
        yield 1

    for function in (lambda: 1, generator, async_generator, Company, "name"):
        with pytest.raises(ConfigError):
            runstate.once(function)
    assert runstate.once(name="named")(lambda: 1)


def test_the_decorated_function_keeps_its_face():
    @runstate.once
    def work(a: int, *, b: str = "x") -> int:
        """What it does."""
        return a

    assert (work.__name__, work.__doc__, work.__module__) == ("work", "What it does.", __name__)


def test_methods_are_keyed_with_their_object(here):
    class Agent:
        @runstate.once(key=lambda self, name: name)
        def research(self, name):
            return name

        @runstate.once
        def keyless(self):
            raise AssertionError

    assert Agent().research("acme") == "acme"
    with pytest.raises(ConfigError, match="argument self is of type Agent"):
        Agent().keyless()
