from typing import Any

import pytest

from noonday.model.errors import Flaw
from noonday.model.notifications.sending import ProviderKind, ProviderLimits
from noonday.notifications.providers.account_fields import AccountField, flaws_in_secrets, text
from noonday.notifications.providers.smtp_account import Encryption, SmtpServer, flaws_of, server_of
from tests.notifications.providers.messages import account

VALID = {"host": "smtp.example.com", "from": "Shop <shop@example.com>"}
LOGIN = {"username": "shop", "password": "secret"}


def test_a_valid_account_has_no_flaws() -> None:
    assert flaws_of(VALID, {}) == []
    assert flaws_of({**VALID, "port": 2525, "encryption": "TLS"}, LOGIN) == []
    assert flaws_of({**VALID, "host": "192.0.2.1"}, LOGIN) == []
    assert flaws_of({**VALID, "host": "2001:db8::1", "encryption": "NONE"}, {}) == []


@pytest.mark.parametrize(
    ("settings", "secrets", "expected"),
    [
        ({"host": None}, {}, Flaw("/settings/host", "must be set: settings.host is required")),
        (
            {"host": "http://a"},
            {},
            Flaw("/settings/host", "must be a host name such as smtp.example.com, or an IP address", "http://a"),
        ),
        ({"port": 0}, {}, Flaw("/settings/port", "must be a port from 1 to 65535", 0)),
        ({"port": True}, {}, Flaw("/settings/port", "must be a port from 1 to 65535", True)),
        ({"encryption": "SSL"}, {}, Flaw("/settings/encryption", "must be one of STARTTLS, TLS, NONE", "SSL")),
        (
            {"from": "nobody"},
            {},
            Flaw(
                "/settings/from",
                "must be an address such as noonday@example.com, or Noonday <noonday@example.com>",
                "nobody",
            ),
        ),
        ({}, {"username": "shop"}, Flaw("/secrets", "must have both username and password, or neither")),
        (
            {},
            {"username": "shop", "password": "a\nb"},
            Flaw("/secrets/password", "must be a text of 1 to 8192 printable characters"),
        ),
        (
            {"hosts": "x"},
            {},
            Flaw(
                "/settings/hosts",
                "is not known; settings of this kind are host, from, port, encryption, ca",
                allowed=("host", "from", "port", "encryption", "ca"),
                nearest="host",
            ),
        ),
    ],
)
def test_each_flaw_names_the_field_and_what_is_allowed(
    settings: dict[str, Any], secrets: dict[str, str], expected: Flaw
) -> None:
    assert flaws_of({**VALID, **settings}, secrets) == [expected]


def test_a_password_needs_encryption() -> None:
    [flaw] = flaws_of({**VALID, "encryption": "NONE"}, LOGIN)
    assert (flaw.pointer, flaw.allowed) == ("/settings/encryption", ("STARTTLS", "TLS"))


def test_authorities_must_be_certificates() -> None:
    for ca in ("no certificate", 7, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"):
        [flaw] = flaws_of({**VALID, "ca": ca}, {})
        assert flaw.pointer == "/settings/ca"


def test_a_flaw_never_contains_a_secret() -> None:
    [flaw] = flaws_in_secrets({"key": "x" * 1_000}, {"key": AccountField(text)})
    assert flaw.value is None


def test_the_port_follows_from_the_encryption() -> None:
    for encryption, port in ((None, 587), ("STARTTLS", 587), ("TLS", 465), ("NONE", 25)):
        assert server_of(account(ProviderKind.SMTP, {**VALID, "encryption": encryption})).port == port


def test_a_server_has_few_connections_and_hides_its_password() -> None:
    limits = ProviderLimits(max_concurrency=10_000)
    server = server_of(account(ProviderKind.SMTP, VALID, LOGIN, limits=limits))
    assert server == SmtpServer("acme", "smtp.example.com", 587, Encryption.STARTTLS, 20, "shop", "secret")
    assert "secret" not in repr(server)
