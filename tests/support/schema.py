"""Today's whole schema as text, to be read: `python -m tests.support.schema FILE`. `make schema` calls it."""

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from tests.support import database

HEAD = (
    "-- Today's tables, to be read; made by `make schema`, never edited. Functions: each room's kernel.sql.\n"
)
_NOISE = re.compile(r"^(?:--(?: Dumped.*)?|\\(?:un)?restrict .*|SET .*|SELECT pg_catalog\.set_config.*)$")


def dump(bin_dir: Path, url: str) -> str:
    """The tables of that database by pg_dump, without what changes from run to run or by version."""
    parts = urlsplit(url)
    command = [bin_dir / "pg_dump", "--schema-only", "--schema=runstate", "--no-owner", "--no-privileges"]
    place = ["--host", parse_qs(parts.query)["host"][0], "--username", str(parts.username)]
    said = subprocess.run(
        [*command, *place, parts.path[1:]], capture_output=True, text=True, check=True
    ).stdout
    lines = [line for line in said.splitlines() if not _NOISE.match(line)]
    return HEAD + re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip("\n") + "\n"


def current() -> str:
    """The schema that the migrations make, on a cluster of its own. Needs the main thread."""
    cluster = database.Cluster()
    with cluster:
        return dump(cluster.postgres.bin_dir, cluster.postgres.database_url(database.TEMPLATE))


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(current())
