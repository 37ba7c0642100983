import msgspec

from noonday.wiring.settings import Settings
from noonday.wiring.settings.access import AuthSettings, EncryptionSettings
from noonday.wiring.settings.reference import SettingDoc, describe_settings
from tests.wiring.settings.sources import MAIL, SECRET, load

DOCS = {doc.key: doc for doc in describe_settings()}


def test_every_setting_is_described() -> None:
    assert all(doc.help.endswith(".") for doc in DOCS.values())
    assert DOCS["auth.secret"].secret
    assert DOCS["scheduler.lead_ms"] == SettingDoc(
        "scheduler.lead_ms",
        "NOONDAY_SCHEDULER_LEAD_MS",
        "integer",
        200,
        "Milliseconds before its time that a job is dispatched; the worker waits for the exact time. 0 disables early dispatch.",
    )


def test_the_described_defaults_are_the_real_ones() -> None:
    plain = msgspec.to_builtins(Settings())
    flat = {
        f"{name}.{inner}" if isinstance(value, dict) else name: value[inner] if isinstance(value, dict) else value
        for name, value in plain.items()
        for inner in (value if isinstance(value, dict) else [""])
    }
    assert {key: doc.default for key, doc in DOCS.items()} == flat


def test_two_settings_never_share_a_variable() -> None:
    assert len({doc.env for doc in DOCS.values()}) == len(DOCS)


def test_printing_settings_shows_no_secret() -> None:
    shown = Settings(auth=AuthSettings(secret=SECRET), encryption=EncryptionSettings(keys="k1:abc"))
    assert "secret='(hidden)'" in repr(shown)
    assert "keys='(hidden)'" in repr(shown)
    assert SECRET not in repr(shown)
    assert dict(shown.auth.__rich_repr__())["secret"] == "(hidden)"


def test_the_password_of_the_mail_server_is_never_shown() -> None:
    shown = load({**MAIL, "email.username": "noonday", "email.password": "sesame"})
    assert "sesame" not in repr(shown)
    assert DOCS["email.password"].secret
