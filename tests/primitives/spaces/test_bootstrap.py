"""The first space and its key, from two variables, by any number of replicas that start at once."""

import httpx
import pytest

from tests.support import database
from tests.support.builders import ok, refused
from tests.support.processes import Replica, replicas
from tests.support.spaces import Space

KEY = "rs_bootstrap_0123456789abcdef"


@pytest.mark.processes
def test_replicas_that_start_at_once_make_the_space_and_the_key_once(fresh_database):
    given = {"BOOTSTRAP_SPACE_ID": "first.space_1-x", "BOOTSTRAP_API_KEY": KEY}
    with replicas(fresh_database, 2, **given) as both:
        for replica in both:
            with Space("first.space_1-x", KEY).client(replica.url) as client:
                ok(client.post("/scopes", json={}), 201)
                assert len(ok(client.get("/scopes"))["scopes"]) >= 1
    assert database.fetchval(fresh_database, "SELECT count(*) FROM runstate.spaces") == 1
    permissions = database.fetchval(fresh_database, "SELECT permissions FROM runstate.api_keys")
    assert sorted(permissions) == ["observe", "resource_config", "runtime", "space_admin"]
    with Replica(fresh_database, **given | {"BOOTSTRAP_SPACE_ID": "second"}) as later:
        for name in ("first.space_1-x", "second"):  # the key that was there covers the new space as well
            with Space(name, KEY).client(later.url) as client:
                ok(client.get("/scopes"))
        assert KEY not in later.log()
    assert database.fetchval(fresh_database, "SELECT count(*) FROM runstate.api_keys") == 1


def test_any_key_of_16_to_255_visible_characters_will_do(server):
    with httpx.Client(base_url=server.url, timeout=20, trust_env=False) as client:
        headers = {"Authorization": "Bearer rs_test_bootstrap_key"}
        ok(client.get("/v1/spaces/bootstrap/scopes", headers=headers))
        refused(client.get("/v1/spaces/Bootstrap/scopes", headers=headers), "FORBIDDEN")
