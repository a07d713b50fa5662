"""The tests of the SDK run where the server and its libraries are not: on the oldest Python, too."""

import subprocess
import sys

from tests.support import sources

PROGRAM = """
import importlib, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"runstate_server", "asyncpg", "fastapi", "sqlalchemy", "alembic"}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        print(f"{name}: {error}")
"""


def test_no_test_of_the_sdk_imports_the_server_or_its_libraries():
    names = [f"tests.sdk.{path.stem}" for path in sorted((sources.ROOT / "tests/sdk").glob("*.py"))]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *names],
        cwd=sources.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    sources.nothing(done.stdout.splitlines())
