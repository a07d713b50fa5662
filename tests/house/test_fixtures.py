"""The fixtures of all tests: a real server, a space of one's own, two replicas behind one port."""

import pytest

from tests.support.processes import Python, Replica
from tests.support.spaces import create


def test_the_server_answers_for_a_fresh_space(api, space):
    made = api.post("/scopes", json={"name": "first"})
    assert made.status_code == 201, made.text
    assert api.get(f"/scopes/{made.json()['id']}").json()["name"] == "first"
    assert len(api.get("/scopes").json()["scopes"]) == 1


async def test_the_server_answers_an_async_client(async_api):
    assert (await async_api.get("/scopes")).json()["scopes"] == []


@pytest.mark.processes
def test_two_replicas_answer_behind_one_port_and_stop_within_the_promised_time(two_replicas, fresh_database):
    front, both = two_replicas
    space = create(fresh_database)
    for _ in range(4):
        with space.client(front.url) as client:
            assert client.put("/runs/default", json={}).status_code == 200
    both[0].kill()
    with space.client(front.url) as client:
        assert client.put("/runs/default", json={}).status_code == 200
    both[0].start()
    assert both[1].stop() in {0, -15, 143}


@pytest.mark.processes
def test_a_replica_that_cannot_start_says_why(fresh_database):
    with pytest.raises(AssertionError, match="RUNSTATE_POOL_SIZE"), Replica(fresh_database, POOL_SIZE="none"):
        pass


@pytest.mark.processes
def test_a_program_is_read_line_by_line_and_killed(space):
    source = "import os\nprint(os.environ['RUNSTATE_SPACE_ID'])\nprint('ready')\nprint(input())\ninput()"
    with Python(source, env=space.environment("http://127.0.0.1:1")) as program:
        assert program.line() == space.id
        program.until_line("ready")
        program.tell("hello")
        assert program.line() == "hello"
        program.kill()
        assert program.process.returncode == -9
