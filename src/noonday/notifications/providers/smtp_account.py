"""Settings and secrets of an SMTP account."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Any

from noonday.model.errors import Flaw
from noonday.model.notifications.sending import ProviderAccount
from noonday.notifications.providers import account_fields as check
from noonday.notifications.providers.account_fields import AccountField, flaws_in_secrets, flaws_in_settings

CA_CHARS = 65_536
MAX_CHECKED = 256
"""Number of certificates whose check is remembered."""
MAX_CONNECTIONS = 20
"""Default and highest number of connections of one account in one process."""


class Encryption(StrEnum):
    """How a connection to a mail server is encrypted."""

    STARTTLS = "STARTTLS"
    """After the greeting. A server that does not offer it is refused: an attacker on the path can strip the offer."""
    TLS = "TLS"
    """From the first byte."""
    NONE = "NONE"


_PORTS = {Encryption.STARTTLS: 587, Encryption.TLS: 465, Encryption.NONE: 25}


def _ca(value: Any) -> str | None:
    if not isinstance(value, str) or len(value) > CA_CHARS:
        return f"must be certificates in PEM, at most {CA_CHARS} characters"
    return _flaw_of_certificates(value)


@lru_cache(maxsize=MAX_CHECKED)
def _flaw_of_certificates(value: str) -> str | None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=value)
    except (ssl.SSLError, ValueError):
        return "must be certificates in PEM, such as -----BEGIN CERTIFICATE-----..."
    return None


SETTINGS: Mapping[str, AccountField] = {
    "host": AccountField(check.host, required=True),
    "from": AccountField(check.sender, required=True),
    "port": AccountField(check.port),
    "encryption": AccountField(check.one_of(*Encryption)),
    "ca": AccountField(_ca),
}
SECRETS: Mapping[str, AccountField] = {"username": AccountField(check.text), "password": AccountField(check.secret)}


def flaws_of(settings: Mapping[str, Any], secrets: Mapping[str, Any]) -> list[Flaw]:
    """Return the flaws of an SMTP account."""
    flaws = flaws_in_settings(settings, SETTINGS) + flaws_in_secrets(secrets, SECRETS)
    if ("username" in secrets) != ("password" in secrets):
        flaws.append(Flaw("/secrets", "must have both username and password, or neither"))
    if settings.get("encryption") == Encryption.NONE and "password" in secrets:
        detail = "must not be NONE with a password, which would be sent as plain text; use STARTTLS or TLS"
        flaws.append(Flaw("/settings/encryption", detail, Encryption.NONE.value, ("STARTTLS", "TLS")))
    return flaws


@dataclass(frozen=True, slots=True)
class SmtpServer:
    """A mail server and the login of an account. Connections belong to it, so it has no more than they depend on."""

    tenant: str
    host: str
    port: int
    encryption: Encryption
    max_connections: int
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca: str | None = field(default=None, repr=False)


def server_of(account: ProviderAccount) -> SmtpServer:
    """Return the server of an account that `flaws_of` accepts."""
    settings = account.settings
    encryption = Encryption(settings.get("encryption") or Encryption.STARTTLS)
    return SmtpServer(
        account.tenant,
        str(settings["host"]),
        int(settings.get("port") or _PORTS[encryption]),
        encryption,
        min(account.limits.max_concurrency or MAX_CONNECTIONS, MAX_CONNECTIONS),
        account.secrets.get("username"),
        account.secrets.get("password"),
        settings.get("ca"),
    )
