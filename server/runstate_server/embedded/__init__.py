"""The PostgreSQL that `runstate dev` and the tests start in a folder of their own.

Promise: the cluster lives exactly as long as its owner. stop() ends it, and so does the owner's death by
any signal (Linux: at once; elsewhere: at the next start on the same folder). One owner per folder.
Plain blocking code without an event loop; it serves before asyncio runs, and in the pytest controller.

A data folder holds: pgdata (the cluster), socket (its only door), postgres.log, lock (held while in use).
Every failure a person can mend is an EmbeddedError of one line.
"""

from runstate_server.embedded.cluster import EmbeddedPostgres, default_data_dir
from runstate_server.embedded.error import EmbeddedError

__all__ = ["EmbeddedError", "EmbeddedPostgres", "default_data_dir"]
