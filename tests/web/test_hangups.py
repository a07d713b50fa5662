"""A caller that hangs up in the middle of its request is no defect of the server."""

import socket

import pytest

from tests.support import races
from tests.support.metrics import Metrics

ROUTE = "/v1/spaces/{space_id}/once/acquire"


def counted(server, status):
    return Metrics.of(server).value("runstate_requests_total", method="POST", route=ROUTE, status=status)


@pytest.mark.parametrize(
    "framing", ["Content-Length: 1000", "Transfer-Encoding: chunked"], ids=["declared", "chunked"]
)
def test_a_body_that_never_ends_is_counted_as_hung_up(server, space, framing):
    gone, crashed = counted(server, "499"), counted(server, "500")
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        head = f"POST /v1/spaces/{space.id}/once/acquire HTTP/1.1\r\nHost: x\r\n"
        head += f"Authorization: Bearer {space.key}\r\n{framing}\r\n\r\n"
        connection.sendall(head.encode() + b'a\r\n{"scopeId"\r\n')
    races.until_blocking(lambda: counted(server, "499") == gone + 1, what="a request that was hung up")
    assert counted(server, "500") == crashed
    assert "a request crashed" not in server.log()
