import dataclasses

import pytest

import runstate
from runstate import AsyncRunstate, ConfigError, Runstate, resolve_config

VARIABLES = ["RUNSTATE_API_KEY", "RUNSTATE_SPACE_ID", "RUNSTATE_BASE_URL", "RUNSTATE_RUN"]


@pytest.fixture(autouse=True)
def no_environment(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_arguments_come_before_the_environment_and_that_before_defaults(monkeypatch):
    config = resolve_config(api_key="k", space_id="s")
    assert (config.base_url, config.run) == ("http://localhost:8080", "default")
    assert (config.request_timeout_ms, config.retries) == (10_000, 2)
    assert config.holder.startswith("worker-")
    assert len(config.holder) == len("worker-") + 6

    for name, value in zip(VARIABLES, [" k2 ", "s2", "http://h:1/prefix/", "nightly"], strict=True):
        monkeypatch.setenv(name, value)
    config = resolve_config()
    assert (config.api_key, config.space_id) == ("k2", "s2")
    assert (config.base_url, config.run) == ("http://h:1/prefix", "nightly")
    assert resolve_config(api_key="k3", run="other").run == "other"
    assert resolve_config(api_key="k3", run="other").api_key == "k3"


@pytest.mark.parametrize("blank", ["", "  "])
def test_blank_variables_count_as_unset_and_blank_arguments_are_mistakes(monkeypatch, blank):
    monkeypatch.setenv("RUNSTATE_API_KEY", blank)
    with pytest.raises(ConfigError, match="RUNSTATE_API_KEY"):
        resolve_config(space_id="s")
    with pytest.raises(ConfigError, match="blank"):
        resolve_config(api_key="k", space_id=blank)


@pytest.mark.parametrize("missing", ["api_key", "space_id"])
@pytest.mark.parametrize("client", [AsyncRunstate, Runstate, resolve_config])
def test_the_object_graph_refuses_missing_settings_at_construction(client, missing):
    settings = {"api_key": "k", "space_id": "s"}
    del settings[missing]
    with pytest.raises(ConfigError, match=missing):
        client(**settings)


@pytest.mark.parametrize(
    "wrong",
    [
        {"base_url": "localhost:8080"},
        {"base_url": "ftp://host"},
        {"base_url": "http://"},
        {"base_url": "http://user:secret-word@host"},
        {"base_url": "http://host?x=1"},
        {"base_url": "http://host:99999"},
        {"base_url": "http://ho st"},
        {"space_id": "a/b"},
        {"space_id": "x" * 65},
        {"api_key": "secret-word\n"},
        {"api_key": "secret-wörd"},
        {"request_timeout_ms": 0},
        {"request_timeout_ms": 1.5},
        {"request_timeout_ms": True},
        {"retries": -1},
        {"retries": "2"},
        {"holder": "h" * 257},
        {"holder": "a\0b"},
        {"run": "r" * 257},
    ],
    ids=str,
)
def test_malformed_settings_are_refused_without_showing_secrets(wrong):
    with pytest.raises(ConfigError) as caught:
        resolve_config(**{"api_key": "k", "space_id": "s", **wrong})
    assert next(iter(wrong)) in str(caught.value)
    assert "secret" not in f"{caught.value}{caught.value!r}"


def test_neither_config_nor_clients_show_the_key():
    settings = {"api_key": "rs_very_secret", "space_id": "s"}
    for shown in (resolve_config(**settings), AsyncRunstate(**settings), Runstate(**settings)):
        assert "very_secret" not in f"{shown}{shown!r}"


def test_config_is_a_value():
    config = resolve_config(api_key="k", space_id="s", holder="h")
    assert config == resolve_config(api_key="k", space_id="s", holder="h")
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.retries = 5


@pytest.mark.parametrize(
    "wrong",
    [
        {"api_key": "a b"},
        {"space_id": "a/b"},
        {"base_url": "nowhere"},
        {"run": ""},
        {"worker": ""},
        {"timeout": 0},
        {"timeout": "soon"},
        {"retries": -1},
    ],
    ids=str,
)
def test_configure_refuses_malformed_settings_at_once(wrong):
    with pytest.raises(ConfigError):
        runstate.configure(**wrong)
