"""A wait has a circle exactly if it is part of one, and then the shortest, from its own holder on."""

from hypothesis import given
from hypothesis import strategies as st

from runstate_server.primitives.ops.reads.circles import Holder, Wait, find_cycles

NAMES = "abcdefg"
WAYS = st.lists(st.tuples(st.sampled_from(NAMES), st.sets(st.sampled_from(NAMES), max_size=3)), max_size=12)


def wait_of(name, others):
    held = [Holder(other, "1", "later") for other in sorted(others)]
    return Wait("claim", "k", None, (name, "1"), "scope", "since", "said", held)


def distances(ways, start):
    """How many steps it is from there to everybody who can be reached, by the plainest of ways."""
    found, edge, steps = {start: 0}, {start}, 0
    while edge:
        steps += 1
        edge = {there for here in edge for there in ways.get(here, ())} - found.keys()
        found |= dict.fromkeys(edge, steps)
    return found


@given(WAYS)
def test_circles_are_those_of_the_graph_and_the_shortest_ones(given_ways):
    found = [wait_of(name, others) for name, others in given_ways]
    find_cycles(found)
    ways = {}
    for name, others in given_ways:
        ways.setdefault(name, set()).update(others - {name})
    for wait, (name, others) in zip(found, given_ways, strict=True):
        back = [distances(ways, other).get(name) for other in others - {name}]
        shortest = min((steps for steps in back if steps is not None), default=None)
        if shortest is None:
            assert wait.cycle is None
            continue
        assert wait.cycle[0] == name
        assert len(wait.cycle) == len(set(wait.cycle)) == shortest + 1
        for here, there in zip(wait.cycle, [*wait.cycle[1:], name], strict=True):
            assert there in ways[here]


def test_those_who_are_not_known_are_in_no_circle():
    wait = wait_of("a", {"a", "b"})
    wait.who = None
    find_cycles([wait, wait_of("b", {"a"})])
    assert wait.cycle is None


def test_a_crowd_is_looked_at_fast_whatever_it_waits_for():
    """Five thousand in a line that ends in nothing, in one that ends in a circle, and in one great circle."""
    line = [wait_of(str(i), {str(i + 1)}) for i in range(4_998)]
    circle = [wait_of("4998", {"4999"}), wait_of("4999", {"4998"})]
    find_cycles(line)
    assert not [wait for wait in line if wait.cycle]
    find_cycles(line + circle)
    assert [wait.cycle for wait in circle] == [["4998", "4999"], ["4999", "4998"]]
    assert not [wait for wait in line if wait.cycle]
    great = [*line, wait_of("4998", {"0"})]
    find_cycles(great)
    assert not [wait for wait in great if wait.cycle]  # longer than anybody would read
