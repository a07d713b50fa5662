import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).with_name("typed_program.py")


def test_decorated_functions_and_clients_keep_their_types(tmp_path):
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--python-version", "3.10"),
            *("--config-file", "", "--cache-dir", tmp_path, PROGRAM),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
