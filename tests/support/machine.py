"""What this machine offers to tests."""

import contextlib
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

SYSTEM_POSTGRES = sorted(
    path for path in Path("/usr/lib/postgresql").glob("*/bin") if (path / "postgres").is_file()
)


@contextlib.contextmanager
def reachable_folder() -> Iterator[Path]:
    """A temporary folder that other users may pass through: the embedded database does not run as root."""
    path = Path(tempfile.mkdtemp(prefix="runstate-test-"))
    path.chmod(0o711)
    try:
        yield path
    finally:
        shutil.rmtree(path)


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
