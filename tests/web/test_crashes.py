"""A defect is a 500 in the envelope, without inner detail; its log line has the request's id."""

import pytest

from tests.support import database, races, spaces
from tests.support.builders import ok, refused, scope
from tests.support.processes import Replica

pytestmark = pytest.mark.processes


def test_a_crash_is_internal_in_the_envelope_and_the_log_has_the_details(fresh_database, kernel_schema):
    space = spaces.create(fresh_database)
    with Replica(fresh_database) as replica, space.client(replica.url) as api:
        root = scope(api)
        database.execute(fresh_database, f"DROP FUNCTION {kernel_schema}.scope_view(text, uuid)")
        response = api.get(f"/scopes/{root}")
        message = refused(response, "INTERNAL")
        for detail in ("scope_view", "function", "Undefined", "Traceback", "asyncpg", "postgres"):
            assert detail.lower() not in message.lower()
        request_id = response.json()["error"]["requestId"]
        races.until_blocking(lambda: replica.log().count(request_id) == 2, what="the access line")
        log = replica.log()
        assert "a request crashed" in log
        assert "UndefinedFunctionError" in log
        assert space.key not in log
        ok(api.get("/scopes"))
