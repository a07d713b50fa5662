"""Every variable has a meaning, a default and a bound; what is wrong is said in one line that names it."""

import pytest

from runstate_server import settings
from runstate_server.settings import Settings, SettingsError, load


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch):
    for name in Settings.model_fields:
        monkeypatch.delenv(f"RUNSTATE_{name.upper()}", raising=False)


def refused(monkeypatch, **variables):
    for name, value in variables.items():
        monkeypatch.setenv(f"RUNSTATE_{name}", value)
    with pytest.raises(SettingsError) as error:
        load()
    return str(error.value).splitlines()


def test_the_documented_defaults_stand():
    found = load()
    assert (found.host, found.port, found.workers, found.pool_size) == ("127.0.0.1", 8080, 1, 10)
    assert (found.drain_grace_s, found.outage_wait_s, found.tick_s, found.sweep_s) == (1.0, 5.0, 2.0, 1.0)
    assert (found.notify, found.named_statements, found.test_clock, found.retention_days) == (
        True,
        True,
        False,
        7,
    )


def test_every_variable_says_what_it_is():
    for line in settings.describe(load()):
        assert line.name.startswith("RUNSTATE_")
        assert line.meaning, line.name
    assert {line.name: line.bound for line in settings.describe(load())}["RUNSTATE_POOL_SIZE"] == "2..64"


def test_a_blank_variable_is_unset(monkeypatch):
    for name in Settings.model_fields:
        monkeypatch.setenv(f"RUNSTATE_{name.upper()}", "  ")
    assert load() == Settings()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "99999"),
        ("PORT", "http"),
        ("POOL_SIZE", "1"),
        ("POOL_SIZE", "65"),
        ("DRAIN_GRACE_S", "31"),
        ("DRAIN_GRACE_S", "nan"),
        ("LOG_FORMAT", "xml"),
        ("NOTIFY", "perhaps"),
        ("DATABASE_URL", "mysql://localhost/x"),
        ("ADMIN_TOKEN", "short"),
        ("ADMIN_TOKEN", "with spaces in it, and long enough"),
    ],
)
def test_a_bad_variable_is_one_line_that_names_it(monkeypatch, name, value):
    (line,) = refused(monkeypatch, **{name: value})
    assert line.startswith(f"RUNSTATE_{name}: ")


def test_every_bad_variable_is_named_at_once(monkeypatch):
    assert len(refused(monkeypatch, PORT="-1", WORKERS="0", TICK_S="never")) == 3


def test_a_secret_is_never_repeated(monkeypatch):
    secrets = {
        "ADMIN_TOKEN": "tell no one",
        "DATABASE_URL": "mysql://u:hunter2@h/d",
        "BOOTSTRAP_API_KEY": "tiny",
    }
    said = "\n".join(refused(monkeypatch, **secrets, BOOTSTRAP_SPACE_ID="acme"))
    assert not any(word in said for word in ("tell no one", "hunter2", "tiny"))
    for name in secrets:
        monkeypatch.delenv(f"RUNSTATE_{name}")
    monkeypatch.setenv("RUNSTATE_DATABASE_URL", "postgres://u:hunter2@h/d")
    monkeypatch.setenv("RUNSTATE_BOOTSTRAP_API_KEY", "0123456789abcdef")
    shown = repr(load()) + "".join(line.value for line in settings.describe(load()))
    assert "hunter2" not in shown
    assert "0123456789abcdef" not in shown


def test_the_bootstrap_pair_comes_together_or_not_at_all(monkeypatch):
    (line,) = refused(monkeypatch, BOOTSTRAP_SPACE_ID="acme")
    assert "RUNSTATE_BOOTSTRAP_API_KEY" in line


def test_three_spellings_of_a_database_url_are_one(monkeypatch):
    for scheme in ("postgres", "postgresql", "postgresql+asyncpg"):
        monkeypatch.setenv("RUNSTATE_DATABASE_URL", f"{scheme}://u@h/d")
        assert load().database_dsn == "postgresql://u@h/d"
        assert load().listen_dsn == "postgresql://u@h/d"
    monkeypatch.setenv("RUNSTATE_LISTEN_URL", "postgresql://u@direct/d")
    assert load().listen_dsn == "postgresql://u@direct/d"


def test_a_missing_database_url_says_what_it_names():
    with pytest.raises(SettingsError, match=r"^RUNSTATE_DATABASE_URL is not set; [^\n]*$"):
        _ = load().database_dsn


def test_a_given_option_wins_over_the_environment(monkeypatch):
    monkeypatch.setenv("RUNSTATE_PORT", "1234")
    assert load(port=4321).port == 4321
    assert load(port=None).port == 1234


def test_a_misspelt_variable_is_noticed(monkeypatch):
    monkeypatch.setenv("RUNSTATE_POOLSIZE", "3")
    monkeypatch.setenv("RUNSTATE_API_KEY", "the SDK's own")
    assert "RUNSTATE_POOLSIZE" in settings.unknown()
    assert "RUNSTATE_API_KEY" not in settings.unknown()
