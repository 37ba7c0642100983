from typing import Any

import pytest

from noonday.model.errors import BadSettings
from noonday.wiring.settings import Settings
from noonday.wiring.settings.checks import check
from tests.wiring.settings.sources import MAIL, SECRET, complaint, load


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "noonday.example.org"])
def test_an_address_that_others_can_reach_needs_a_secret_or_a_key_set(host: str) -> None:
    detail = complaint({"host": host})
    assert detail.startswith(f"host is '{host}', which other machines can reach")
    assert "NOONDAY_AUTH_SECRET" in detail
    assert load({"host": host, "auth.secret": SECRET}).host == host
    provider = {"auth.jwks_file": "keys.json", "auth.issuer": "https://id", "auth.audience": "noonday"}
    assert load({"host": host, "auth.algorithm": "ES256", **provider}).host == host


@pytest.mark.parametrize("missing", ["issuer", "audience"])
@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
def test_beyond_loopback_a_provider_needs_issuer_and_audience(algorithm: str, missing: str) -> None:
    provider = {"auth.jwks_file": "keys.json", "auth.issuer": "https://id", "auth.audience": "noonday"}
    del provider[f"auth.{missing}"]
    assert f"auth.{missing} is not set" in complaint({"host": "0.0.0.0", "auth.algorithm": algorithm, **provider})
    assert load({"auth.algorithm": algorithm, **provider}).auth.algorithm == algorithm


@pytest.mark.parametrize("secret", ["replace-me: openssl rand -base64 32 makes one", "CHANGEME" * 5])
def test_a_secret_from_a_manual_is_refused(secret: str) -> None:
    assert "a published example" in complaint({"auth.secret": secret})


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_needs_no_secret(host: str) -> None:
    assert load({"host": host}).host == host


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"auth.algorithm": "RS256"}, "set one of auth.jwks_url and auth.jwks_file, not both"),
        (
            {"auth.algorithm": "RS256", "auth.jwks_url": "https://id", "auth.jwks_file": "x"},
            "set one of auth.jwks_url and auth.jwks_file, not both",
        ),
        ({"auth.jwks_url": "https://id"}, "auth.algorithm is HS256: set auth.algorithm to RS256 or ES256"),
        (
            {"auth.algorithm": "ES256", "auth.jwks_file": "x", "auth.secret": SECRET},
            "ES256, which has no secret: remove one of them",
        ),
        ({"scheduler.hint_ahead_sec": 600}, "must be more than scheduler.hydrate_ahead_sec (600)"),
        ({"ui.origins": "jobs.example.com"}, "'jobs.example.com' is not an origin such as"),
        ({"ui.origins": "https://jobs.example.com/ui"}, "is not an origin such as"),
        ({"logs_url_template": "https://logs/"}, "must contain {executionId}"),
        ({"logs_url_template": "https://logs/{executionId}/{}"}, "no other {name}"),
        ({"logs_url_template": "https://logs/{executionId"}, "must contain {executionId}"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(flags: dict[str, Any], expected: str) -> None:
    assert expected in complaint(flags)


def test_a_template_for_logs_is_kept() -> None:
    assert load({"logs_url_template": "https://logs/{executionId}?x=1"}).logs_url_template


def test_settings_made_by_hand_can_be_checked_too() -> None:
    with pytest.raises(BadSettings, match="which other machines can reach"):
        check(Settings(host="0.0.0.0"))


def test_invalid_network_is_refused() -> None:
    with pytest.raises(BadSettings, match=r"webhooks\.allow_networks: .*'localhost'"):
        load(env={"NOONDAY_WEBHOOKS_ALLOW_NETWORKS": "localhost"})


@pytest.mark.parametrize("password", [{"email.password": "sesame"}, {"email.password_file": "/run/secrets/mail"}])
def test_a_name_goes_with_a_password(password: dict[str, str]) -> None:
    assert load({**MAIL, "email.username": "noonday", **password}).email.username == "noonday"
    assert "set both email.username and email.password" in complaint({**MAIL, **password})


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"email.host": "mail.example.com"}, "email.sender is not: set email.sender"),
        ({**MAIL, "email.sender": "Noonday"}, "email.sender is 'Noonday': must be an address"),
        ({**MAIL, "email.username": "noonday"}, "set both email.username and"),
        (
            {**MAIL, "email.username": "n", "email.password": "p", "email.password_file": "f"},
            "email.password and email.password_file are both set",
        ),
        ({**MAIL, "email.tls": "true", "email.starttls": "always"}, "email.starttls cannot be always"),
        ({**MAIL, "email.starttls": "maybe"}, "must be always or auto or never"),
    ],
)
def test_email_that_cannot_work_is_refused(flags: dict[str, Any], message: str) -> None:
    assert message in complaint(flags)


def test_limits_that_do_not_fit_into_a_kafka_message_are_refused_with_the_needed_size() -> None:
    message = complaint({"kafka.servers": "127.0.0.1:9092", "limits.payload_bytes": 2_000_000})
    assert "kafka.message_bytes is 1048576, but a dispatch within the configured limits may need 2131" in message
    assert "lower limits.payload_bytes or limits.progress_bytes" in message


def test_without_kafka_nothing_has_to_fit_into_a_message() -> None:
    assert load({"limits.payload_bytes": 2_000_000}).limits.payload_bytes == 2_000_000
