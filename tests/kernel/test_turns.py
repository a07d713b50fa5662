"""Few connections, many callers: spaces in turn, and within one first come, first served."""

import asyncio

import pytest

from runstate_server.kernel.turns import Crowds, Turns
from tests.support import races


class Callers:
    """Callers that keep their turn until they are told to give it back."""

    def __init__(self, count):
        self.turns = Turns(count)
        self.served = []
        self._over = {}
        self._tasks = {}

    async def come(self, name, *, within_s=30.0):
        """`name` is that of its line, with a number."""
        self._over[name] = asyncio.Event()
        self._tasks[name] = asyncio.create_task(self._serve(name, within_s))
        await asyncio.sleep(0)

    async def _serve(self, name, within_s):
        async with self.turns.turn(name[0], within_s=within_s):
            self.served.append(name)
            await self._over[name].wait()

    async def go(self, name):
        self._over[name].set()
        await self._tasks[name]
        await asyncio.sleep(0)

    async def leave(self, name):
        self._tasks[name].cancel()
        await asyncio.gather(self._tasks[name], return_exceptions=True)

    async def until(self, *served):
        async def is_so():
            return self.served == list(served)

        await races.until(is_so, what=f"{served} served")


async def test_so_many_at_once_and_the_others_in_the_order_in_which_they_came():
    callers = Callers(2)
    for name in ("a1", "a2", "a3", "a4"):
        await callers.come(name)
    await callers.until("a1", "a2")
    await callers.go("a2")
    await callers.until("a1", "a2", "a3")
    await callers.go("a1")
    await callers.until("a1", "a2", "a3", "a4")


async def test_a_second_space_waits_for_one_turn_and_not_for_a_whole_line():
    callers = Callers(1)
    for name in ("a1", "a2", "a3", "a4", "b1", "c1", "b2"):
        await callers.come(name)
    for name in ("a1", "a2", "b1", "c1", "a3", "b2", "a4"):
        assert callers.served[-1] == name
        await callers.go(name)
    assert callers.turns.waiting == 0


async def test_who_gives_up_takes_nobody_s_turn_along():
    callers = Callers(1)
    for name in ("a1", "a2", "b1", "a3"):
        await callers.come(name)
    await callers.leave("b1")
    await callers.leave("a2")
    await callers.go("a1")
    await callers.until("a1", "a3")
    await callers.go("a3")
    await callers.come("a4")
    await callers.until("a1", "a3", "a4")


async def test_a_turn_that_comes_as_its_caller_gives_up_goes_to_the_next():
    callers = Callers(1)
    for name in ("a1", "a2", "a3"):
        await callers.come(name)
    callers._tasks["a2"].cancel()  # heard of only once the loop comes to it
    await callers.go("a1")
    await callers.until("a1", "a3")
    callers = Callers(1)
    for name in ("a1", "a2", "a3"):
        await callers.come(name)
    callers._over["a1"].set()
    await callers._tasks["a1"]  # the turn has been given to a2
    await callers.leave("a2")
    await callers.until(*[name for name in ("a1", "a2", "a3") if name != "a2" or "a2" in callers.served])


async def test_a_turn_that_does_not_come_in_time_is_a_time_out_and_leaves_nothing_behind():
    callers = Callers(1)
    await callers.come("a1")
    for line in ("a", "b"):
        with pytest.raises(TimeoutError):
            async with callers.turns.turn(line, within_s=0.01):
                pass
    assert callers.turns.waiting == 0
    await callers.go("a1")
    await callers.come("b1")
    await callers.until("a1", "b1")


async def test_so_many_at_one_row_and_nobody_at_another_waits_for_them():
    crowds, inside, over = Crowds(2), [], asyncio.Event()

    async def come(name, row):
        async with crowds.place(row, within_s=30):
            inside.append(name)
            await over.wait()

    async with asyncio.TaskGroup() as group:
        for name in ("a1", "a2", "a3"):
            group.create_task(come(name, "a"))
        group.create_task(come("b1", "b"))
        group.create_task(come("none", None))
        await races.until(_is(lambda: len(inside) == 4), what="four inside")
        assert inside == ["a1", "a2", "b1", "none"]
        with pytest.raises(TimeoutError):
            async with crowds.place("a", within_s=0.01):
                inside.append("too late")
        over.set()
    assert inside == ["a1", "a2", "b1", "none", "a3"]
    assert crowds._at == {}  # a row that nobody meets at is forgotten


def _is(probe):
    async def told():
        return probe()

    return told
