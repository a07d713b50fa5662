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


@pytest.mark.parametrize("blank", ["", " ", "\t \n"])
def test_every_blank_variable_counts_as_unset(monkeypatch, blank):
    for name in VARIABLES:
        monkeypatch.setenv(name, blank)
    config = resolve_config(api_key="k", space_id="s")
    assert (config.base_url, config.run) == ("http://localhost:8080", "default")
    for missing in ("api_key", "space_id"):
        given = {"api_key": "k", "space_id": "s"}
        del given[missing]
        with pytest.raises(ConfigError, match=f"{missing}= or set RUNSTATE_{missing.upper()}"):
            resolve_config(**given)
    assert runstate.run("nightly").name == "nightly"


MALFORMED = {
    "RUNSTATE_API_KEY": ("secret wörd", "printable ASCII"),
    "RUNSTATE_SPACE_ID": ("a/b", "characters of"),
    "RUNSTATE_BASE_URL": ("localhost:8080", "does not begin with http"),
    "RUNSTATE_RUN": ("r" * 257, "256 characters"),
}


@pytest.mark.parametrize(("variable", "value", "why"), [(k, *v) for k, v in MALFORMED.items()], ids=MALFORMED)
def test_a_malformed_variable_is_named_with_what_is_wrong(monkeypatch, variable, value, why):
    monkeypatch.setenv("RUNSTATE_API_KEY", "k")
    monkeypatch.setenv("RUNSTATE_SPACE_ID", "s")
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigError, match=variable) as caught:
        resolve_config()
    assert why in str(caught.value)
    assert "secret" not in f"{caught.value}{caught.value!r}"
    assert (caught.value.code, caught.value.status) == ("CONFIG_ERROR", 0)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("runstate.example", "does not begin with http"),
        ("https://", "no host"),
        ("http://host:port", "no usable host or port"),
        ("http://host:99999", "no usable host or port"),
        ("http://[::1", "no usable host or port"),
        ("http://ho st", "white space"),
        ("http://me:secret@host", "user or password"),
        ("http://host/?space=1", "query or fragment"),
        (8080, "no string"),
    ],
    ids=str,
)
def test_a_base_url_that_cannot_be_used_says_why_and_is_not_shown(url, why):
    with pytest.raises(ConfigError, match=f"base_url .*{why}") as caught:
        resolve_config(api_key="k", space_id="s", base_url=url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["https://h", "http://h:1/", "http://[::1]:8080", "HTTP://H/prefix//"])
def test_a_base_url_is_taken_in_any_usual_form(url):
    shown = resolve_config(api_key="k", space_id="s", base_url=url).base_url
    assert shown == url.rstrip("/").replace("HTTP:", "http:")


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
