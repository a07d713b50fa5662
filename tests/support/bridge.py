"""A server for tests that run under a Python which the server itself does not support.

`python -m tests.support.bridge COMMAND...` starts a cluster and a replica, gives spaces away on a loopback
port, runs the command with both addresses in its environment, and ends with its exit status. The other side
is tests/support/visitor.py.
"""

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.support import database, spaces
from tests.support.processes import Replica


@contextlib.contextmanager
def giving_spaces(database_url: str) -> Iterator[str]:
    """A loopback address where each GET is answered with a new space and its key."""

    class Giver(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(dataclasses.asdict(spaces.create(database_url))).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Giver) as giver:
        thread = threading.Thread(target=giver.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{giver.server_port}"
        finally:
            giver.shutdown()
            thread.join()


def main(command: list[str]) -> int:
    """Returns the exit status of the command."""
    with (
        database.Cluster() as template,
        template.clone() as url,
        Replica(url) as replica,
        giving_spaces(url) as spaces_url,
    ):
        addresses = {"TESTS_SERVER_URL": replica.url, "TESTS_SPACES_URL": spaces_url}
        return subprocess.run(command, env=os.environ | addresses, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
