"""What is built is what is needed: code, SQL, revisions; nothing of the tests, no stray file."""

import subprocess
import sys
import zipfile

import pytest

from tests.support import sources


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=sources.ROOT, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        yield set(archive.namelist())


def test_the_server_s_wheel_holds_all_of_the_server_and_its_revisions(wheel):
    server = {
        "runstate_server/" + str(p.relative_to(sources.SERVER))
        for p in sources.files()
        if p.is_relative_to(sources.SERVER)
    }
    revisions = {
        "runstate_server/" + sources.name(p)
        for p in sources.files(".py", ".mako")
        if sources.name(p).startswith("migrations/")
    }
    assert server | revisions <= wheel
    assert any(path.endswith("licenses/LICENSE") for path in wheel)
    assert {path.split("/")[0] for path in wheel} == {"runstate_server", "runstate_server-0.1.0.dist-info"}
