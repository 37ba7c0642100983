import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from noonday.model.errors import BadSettings
from noonday.wiring.settings import Settings
from noonday.wiring.settings.loading import load_settings
from noonday.wiring.settings.reference import SettingDoc, describe_settings
from tests.wiring.settings.sources import complaint, load

DOCS = {doc.key: doc for doc in describe_settings()}


def value_of(loaded: Settings, key: str) -> Any:
    *section, name = key.split(".")
    return getattr(getattr(loaded, section[0]) if section else loaded, name)


def file_with(directory: Path, text: str, name: str = "noonday.toml") -> Path:
    path = directory / name
    path.write_text(text)
    return path


def toml_line(key: str, value: Any) -> str:
    *section, name = key.split(".")
    return f"{'[' + section[0] + ']' if section else ''}\n{name} = {json.dumps(value)}\n"


def test_defaults_apply_without_any_setting() -> None:
    loaded = load()
    assert loaded == Settings()
    assert (loaded.data, loaded.host, loaded.port) == ("noonday.db", "127.0.0.1", 8080)


def values_for(doc: SettingDoc) -> st.SearchStrategy[Any]:
    if doc.type == "integer":
        # Near the default, so that no limit is passed and settings still agree.
        near = doc.default or 3
        return st.integers(max(2, near - 50), near + min(50, near))
    if doc.type == "boolean":
        return st.booleans()
    if doc.key in ("auth.jwks_url", "telemetry.otlp_endpoint", "etcd.urls"):
        return st.just("https://example.org/x")
    if doc.key in ("postgres.url", "redis.url"):
        return st.just(f"{doc.key.split('.')[0]}://example.org/x")
    if doc.key == "webhooks.allow_networks":
        return st.sampled_from(["127.0.0.0/8", "10.1.0.0/16, fd00::/8"])
    if doc.key == "ui.origins":
        return st.sampled_from(["https://jobs.example.com", "http://lab:8000, https://jobs.example.com/"])
    if " | " in doc.type:
        return st.sampled_from(doc.type.split(" | "))
    return st.text("abcdefghijklmnopqrstuvwxyz", min_size=32, max_size=40)


TOGETHER = ("auth.", "email.")
"""Sections whose settings agree with each other."""


ALONE = [doc for key, doc in DOCS.items() if key not in ("host", "logs_url_template") and not key.startswith(TOGETHER)]


documented_values = st.sampled_from(ALONE).flatmap(
    lambda doc: st.tuples(st.just(doc), values_for(doc), values_for(doc))
)


@pytest.mark.slow
@given(documented_values)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_setting_can_come_from_each_source_and_flags_beat_environment_beats_file(
    tmp_path: Path, setting: tuple[SettingDoc, Any, Any]
) -> None:
    doc, value, other = setting
    assume(value != other)
    in_file = file_with(tmp_path, toml_line(doc.key, value))
    other_in_file = file_with(tmp_path, toml_line(doc.key, other), "other.toml")
    env = {doc.env: str(value)}
    assert value_of(load(toml=in_file), doc.key) == value
    assert value_of(load(env=env, toml=other_in_file), doc.key) == value
    assert value_of(load({doc.key: value}, {doc.env: str(other)}, other_in_file), doc.key) == value
    assert value_of(load({doc.key.replace(".", "_"): str(value)}), doc.key) == value


def test_a_flag_that_was_not_given_and_an_empty_variable_set_nothing() -> None:
    assert load({"port": None}, {"NOONDAY_PORT": " ", "NOONDAY_AUTH_SECRET": ""}) == Settings()


def test_variables_of_others_and_of_the_client_are_left_alone() -> None:
    assert load(env={"PATH": "/bin", "NOONDAYS": "1", "NOONDAY_URL": "http://x", "NOONDAY_TOKEN": "t"}) == Settings()


def test_choices_may_be_written_in_any_case() -> None:
    loaded = load({"store.synchronous": "normal"}, {"NOONDAY_LOG_LEVEL": "debug"})
    assert (loaded.store.synchronous, loaded.log_level) == ("NORMAL", "DEBUG")


def test_a_path_is_taken_as_text() -> None:
    assert load({"data": Path("/var/x.db")}).data == "/var/x.db"


def test_the_keys_have_a_short_variable() -> None:
    assert load(env={"NOONDAY_KEYS": "k1:abc"}).encryption.keys == "k1:abc"


def test_the_keys_given_under_both_names_are_refused() -> None:
    detail = complaint(env={"NOONDAY_KEYS": "k1:abc", "NOONDAY_ENCRYPTION_KEYS": "k2:abc"})
    assert detail == "NOONDAY_KEYS and NOONDAY_ENCRYPTION_KEYS are both set and mean the same: remove one"


def test_the_file_in_the_working_directory_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_settings({}, {}).port == 8080
    file_with(tmp_path, "port = 9000")
    assert load_settings({}, {}).port == 9000


def test_the_variable_names_another_file_and_the_flag_beats_it(tmp_path: Path) -> None:
    by_variable = file_with(tmp_path, "port = 1111", "by_variable.toml")
    by_flag = file_with(tmp_path, "port = 2222", "by_flag.toml")
    env = {"NOONDAY_CONFIG": str(by_variable)}
    assert load_settings({}, env).port == 1111
    assert load_settings({}, env, by_flag).port == 2222


def test_a_misspelt_key_in_the_file_gets_the_nearest_one(tmp_path: Path) -> None:
    path = file_with(tmp_path, "prot = 1\n[schedular]\nbatch = 5\n")
    assert complaint(toml=path).splitlines() == [
        f"prot is not a setting (file {path}); did you mean port?",
        f"schedular.batch is not a setting (file {path}); did you mean scheduler.batch?",
    ]


def test_a_misspelt_variable_gets_the_nearest_one() -> None:
    detail = complaint(env={"NOONDAY_SCHEDULER_BACH": "5"})
    assert detail == (
        "NOONDAY_SCHEDULER_BACH is not a setting (environment variable NOONDAY_SCHEDULER_BACH); "
        "did you mean NOONDAY_SCHEDULER_BATCH?"
    )


def test_a_misspelt_flag_gets_the_nearest_one() -> None:
    assert complaint({"worker.thread": 5}) == (
        "worker.thread is not a setting (flag worker.thread); did you mean worker.threads?"
    )


def test_a_name_like_no_other_gets_no_guess() -> None:
    assert complaint({"zzzz": 5}) == "zzzz is not a setting (flag zzzz)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("auth = 5", "auth is a section, not a setting (file {path}): write [auth]"),
        ("[zzzz]", "zzzz is not a setting (file {path})"),
        ("port = '8080'", "port is '8080' (file {path}): must be a whole number from 0 to 65535"),
        ("port = 80.5", "port is 80.5 (file {path}): must be a whole number from 0 to 65535"),
        ("[port]\nx = 1", "port.x is not a setting (file {path}); did you mean port?"),
        ("data = ''", "data is '' (file {path}): must be text, not empty"),
    ],
)
def test_wrong_value_in_the_file_is_refused_with_the_allowed_range(tmp_path: Path, text: str, expected: str) -> None:
    path = file_with(tmp_path, text)
    assert complaint(toml=path) == expected.format(path=path)


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("NOONDAY_PORT", "http", "port is 'http' ({}): must be a whole number from 0 to 65535"),
        ("NOONDAY_PORT", "70000", "port is '70000' ({}): must be a whole number from 0 to 65535"),
        ("NOONDAY_WORKER_THREADS", "-1", "worker.threads is '-1' ({}): must be a whole number from 1 to 10000"),
        ("NOONDAY_STORE_SYNCHRONOUS", "OFF", "store.synchronous is 'OFF' ({}): must be FULL or NORMAL"),
        (
            "NOONDAY_AUTH_JWKS_URL",
            "file:///etc/passwd",
            "auth.jwks_url is 'file:///etc/passwd' ({}): must be a URL that begins with http:// or https://",
        ),
        ("NOONDAY_AUTH_SECRET", "short", "auth.secret is (hidden) ({}): must be text of at least 32 characters"),
    ],
)
def test_wrong_value_in_the_environment_is_refused_with_the_allowed_range(
    variable: str, value: str, expected: str
) -> None:
    assert complaint(env={variable: value}) == expected.format(f"environment variable {variable}")


def test_every_flaw_is_reported_at_once_and_in_machine_readable_form() -> None:
    with pytest.raises(BadSettings) as caught:
        load({"prot": 1}, {"NOONDAY_PORT": "x", "NOONDAY_AUTH_SECRET": "short"})
    flaws = caught.value.context["flaws"]
    assert [(flaw.pointer, flaw.value, flaw.nearest) for flaw in flaws] == [
        ("/prot", None, "port"),
        ("/auth/secret", None, None),
        ("/port", "x", None),
    ]


def test_a_long_value_is_shortened() -> None:
    assert len(complaint({"port": "9" * 10_000})) < 200


def test_a_file_that_is_not_toml_is_named_with_the_line(tmp_path: Path) -> None:
    path = file_with(tmp_path, "port = 1\nport port")
    assert complaint(toml=path).startswith(f"the settings file {path} is not TOML:")
    assert "line 2" in complaint(toml=path)


def test_a_named_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    detail = complaint(toml=tmp_path / "no.toml")
    assert detail == f"cannot read the settings file {tmp_path}/no.toml: No such file or directory"


def test_networks_are_listed_with_commas() -> None:
    webhooks = load(env={"NOONDAY_WEBHOOKS_ALLOW_NETWORKS": "127.0.0.0/8, fd00::/8"}).webhooks
    assert webhooks.networks == ("127.0.0.0/8", "fd00::/8")
    assert load().webhooks.networks == ()


def test_email_comes_from_each_source() -> None:
    env = {
        "NOONDAY_EMAIL_HOST": "mail.example.com",
        "NOONDAY_EMAIL_SENDER": "a@example.com",
        "NOONDAY_EMAIL_TLS": "true",
    }
    email = load({"email_port": 465}, env).email
    assert (email.host, email.port, email.tls, email.starttls) == ("mail.example.com", 465, True, "auto")


def test_without_a_mail_server_there_is_no_email() -> None:
    assert load().email.host is None
