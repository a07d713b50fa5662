import copy
import inspect
import json
import pickle
from pathlib import Path

import pytest

import runstate
from runstate import errors

CASES = json.loads(Path(__file__).parent.parent.joinpath("conformance/errors.json").read_text())["cases"]
CLASSES = [
    kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, errors.RunstateError)
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['code']}-{case['class']}")
def test_every_code_of_the_server_becomes_the_class_of_the_conformance_file(case):
    error = runstate.map_error(case["code"], case["status"], case["message"], "req-1", 1500)

    assert type(error).__name__ == case["class"]
    assert all(isinstance(error, getattr(runstate, name)) for name in case["alsoA"])
    assert (error.code, error.status, error.message) == (case["code"], case["status"], case["message"])
    assert (error.request_id, error.retry_after_ms) == ("req-1", 1500)
    assert error.retryable is case["retryable"]


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_every_error_pickles_and_copies_intact(kind, protocol):
    error = kind("what happened", code="SOME_CODE", status=409, request_id="r", retry_after_ms=7)
    if kind is errors.OnceFailedError:
        error.attempts = 3
    if kind is errors.TaskFailedError:
        error.job_id, error.reason = "job-1", "handler_error"

    for other in (pickle.loads(pickle.dumps(error, protocol)), copy.copy(error), copy.deepcopy(error)):
        assert type(other) is kind
        assert other.__dict__ == error.__dict__
        assert (str(other), repr(other), other.args) == (str(error), repr(error), error.args)


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_is_exported_and_says_that_the_sdk_raised_it(kind):
    assert getattr(runstate, kind.__name__) is kind
    assert kind("m").status == 0
    assert kind("m").retry_after_ms is None
    assert str(kind("the message")) == "the message"


def test_the_tree_is_the_documented_one():
    assert issubclass(runstate.BudgetExceededError, runstate.ConflictError)
    assert issubclass(runstate.StoppedError, runstate.ScopeCancelledError)
    assert issubclass(runstate.WaitTimeoutError, TimeoutError)
    assert runstate.ConfigError("m").code == "CONFIG_ERROR"
    assert runstate.OnceFailedError("m", attempts=3).attempts == 3
    failed = runstate.TaskFailedError("m", job_id="j", reason="deadline")
    assert (failed.job_id, failed.reason) == ("j", "deadline")
