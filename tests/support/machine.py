"""What this machine offers to tests."""

import contextlib
import random
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
    """A TCP port of 127.0.0.1 that nobody listens on, below those that outgoing connections are given:
    it stays free until the server that it is for takes it, and between two starts of that server."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def forget_peak(pid: int) -> None:
    """From here on, peak_bytes counts anew."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak_bytes(pid: int) -> int:
    """The most memory that the process has had resident since it began or its peak was forgotten."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024
