"""What a replica tells of the waits of its long polls: what has changed, and no more. What may have been told
is taken back."""

import logging
import uuid

import pytest

from runstate_server.foundation import bounds
from runstate_server.web.waiting import Waiters, Waiting

SCOPE = uuid.UUID(int=1)
CLAIM = Waiting("claim", "k", SCOPE, "ann", "1")
LONG_S = 10.0


class Board:
    """Where waits are told: the ids that stand there, and how often something was said."""

    def __init__(self):
        self.ids = set()
        self.said = 0
        self.error = None
        self.lost_answer = False

    async def publish(self, gone, come, now):
        self.said += 1
        assert len(gone) <= bounds.waits_told_max
        assert len(come) <= bounds.waits_told_max
        if self.error is None or self.lost_answer:
            self.ids -= {stay.id for stay in gone}
            self.ids |= {stay.id for stay in come}
        if self.error is not None:
            raise self.error


@pytest.fixture
def board():
    return Board()


@pytest.fixture
def waiters():
    return Waiters()


def aged(stay, by_s=LONG_S):
    """As if it had begun, and been left, so long ago."""
    stay.since -= by_s
    if stay.returns_by is not None:
        stay.returns_by -= by_s
    return stay


async def test_a_wait_is_told_of_once_and_taken_back_once(waiters, board):
    with waiters.asleep("s", CLAIM) as stay:
        aged(stay)
        for _ in range(3):
            await waiters.tell(board.publish)
        assert (board.ids, board.said) == ({stay.id}, 1)
    for _ in range(3):
        await waiters.tell(board.publish)
    assert (board.ids, board.said) == (set(), 2)


async def test_short_waits_and_idle_replicas_say_nothing(waiters, board):
    await waiters.tell(board.publish)
    for _ in range(100):
        with waiters.asleep("s", CLAIM):
            await waiters.tell(board.publish)
    assert (board.said, waiters.count) == (0, 0)


async def test_the_next_poll_goes_on_with_the_wait(waiters, board):
    with waiters.asleep("s", CLAIM) as first:
        aged(first)
        await waiters.tell(board.publish)
        first.may_return(first.since + LONG_S)
    await waiters.tell(board.publish)
    with waiters.asleep("s", CLAIM) as second:
        assert second is first
        with waiters.asleep("s", CLAIM) as beside, waiters.asleep("t", CLAIM) as elsewhere:
            assert len({first.id, beside.id, elsewhere.id}) == 3
        await waiters.tell(board.publish)
    assert board.said == 1
    await waiters.tell(board.publish)
    assert (board.ids, board.said, waiters.count) == (set(), 2, 0)


async def test_one_that_does_not_come_back_is_gone(waiters, board):
    with waiters.asleep("s", CLAIM) as stay:
        aged(stay)
        await waiters.tell(board.publish)
        stay.may_return(stay.since + LONG_S)
    aged(stay)
    await waiters.tell(board.publish)
    assert (board.ids, waiters.count) == (set(), 0)
    with waiters.asleep("s", CLAIM) as another:
        assert another is not stay


@pytest.mark.parametrize("lost_answer", [True, False])
@pytest.mark.parametrize("still_waits", [True, False])
async def test_what_could_not_be_told_is_told_the_next_time_and_logged_once(
    waiters, board, caplog, *, lost_answer, still_waits
):
    board.error, board.lost_answer = ConnectionResetError(), lost_answer
    with caplog.at_level(logging.WARNING), waiters.asleep("s", CLAIM) as stay:
        aged(stay)
        for _ in range(3):
            await waiters.tell(board.publish)
        assert len(caplog.records) == 1
        if still_waits:
            board.error = None
            await waiters.tell(board.publish)
            assert board.ids == {stay.id}
    board.error = None
    await waiters.tell(board.publish)
    said = board.said
    await waiters.tell(board.publish)
    assert (board.ids, board.said) == (set(), said)


async def test_a_defect_is_logged_with_its_trace_and_ends_nothing(waiters, board, caplog):
    board.error = ValueError("a defect")
    with waiters.asleep("s", CLAIM) as stay:
        aged(stay)
        await waiters.tell(board.publish)
        assert "a defect" in caplog.text
        board.error = None
        await waiters.tell(board.publish)
        assert board.ids == {stay.id}


async def test_a_crowd_is_told_of_in_portions(waiters, board):
    stays = [waiters._resumed("s", CLAIM) for _ in range(2 * bounds.waits_told_max + 1)]
    for stay in stays:
        aged(stay)
    for _ in range(3):
        await waiters.tell(board.publish)
    assert len(board.ids) == len(stays)
    for stay in stays:
        waiters._over(stay)
    for _ in range(3):
        await waiters.tell(board.publish)
    assert (board.ids, board.said) == (set(), 6)


async def test_a_process_that_ends_takes_all_back(waiters, board):
    with waiters.asleep("s", CLAIM) as stay:
        aged(stay)
        await waiters.tell(board.publish)
        await waiters.leave(board.publish)
    assert board.ids == set()
