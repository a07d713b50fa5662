import inspect
import subprocess
import sys
import types

import pytest

import runstate
from runstate import AsyncRunstate, Run, Runstate, handles

NAMES = [
    name
    for name in dir(runstate)
    if not name.startswith("_") and not inspect.ismodule(getattr(runstate, name))
]


def test_all_is_sorted_and_is_what_there_is():
    assert runstate.__all__ == sorted(set(runstate.__all__))
    assert set(runstate.__all__) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_is_explained(name):
    assert inspect.getdoc(getattr(runstate, name))


@pytest.mark.parametrize(
    "name", ["run_id", "child", "stop", "finish", "status", "take", "setup", "sleep", "together"]
)
def test_every_blocking_function_has_an_async_twin_with_the_same_arguments(name):
    for owner in (runstate, Run):
        plain, twin = getattr(owner, name), getattr(owner, f"a{name}")
        assert inspect.iscoroutinefunction(twin)
        assert not inspect.iscoroutinefunction(plain)
        assert inspect.signature(plain) == inspect.signature(twin)
    assert (
        list(inspect.signature(getattr(runstate, name)).parameters)
        == list(inspect.signature(getattr(Run, name)).parameters)[1:]
    )


def test_run_is_the_function_also_after_its_module_was_imported():
    import runstate.run

    assert isinstance(runstate.run, types.FunctionType)


def test_importing_and_constructing_open_no_socket_and_start_no_thread():
    program = """
import sys
seen = []
sys.addaudithook(lambda event, _: seen.append(event))
import runstate
runstate.Runstate(api_key="k", space_id="s").scope("x")
runstate.run("x").once(name="f")(print)
assert not [event for event in seen if event.startswith(("socket.", "_thread.start"))], seen
assert not {"fastapi", "pydantic", "sqlalchemy", "uvloop", "runstate_server"} & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_blocking_client_has_every_member_of_the_async_one():
    public = {name for name in dir(AsyncRunstate) if not name.startswith("_")}
    assert public - set(dir(Runstate)) == {"aclose"}
    assert inspect.signature(Runstate) == inspect.signature(AsyncRunstate)


def test_the_faces_of_handles_have_their_members_and_block():
    from runstate.blocking import _face_class
    from runstate.handles.scopes import ScopeHandle, ScopesAPI

    assert handles.__name__ == "runstate.handles"
    for kind in (ScopeHandle, ScopesAPI):
        face = _face_class(kind)
        for name, method in inspect.getmembers(kind, inspect.iscoroutinefunction):
            assert not inspect.iscoroutinefunction(getattr(face, name))
            assert inspect.signature(getattr(face, name)) == inspect.signature(method)
            assert inspect.getdoc(getattr(face, name)) == inspect.getdoc(method)
