"""Settings and secrets of a Firebase Cloud Messaging account."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any

import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from noonday.model.errors import Flaw
from noonday.model.notifications.sending import ProviderAccount
from noonday.notifications.providers import account_fields as check
from noonday.notifications.providers.account_fields import (
    SECRET_CHARS,
    AccountField,
    flaws_in_secrets,
    flaws_in_settings,
)
from noonday.notifications.providers.hosts import ProviderHosts
from noonday.notifications.providers.http_client import flaw_of_url

DOMAIN = "googleapis.com"
DEFAULT_URL = "https://fcm.googleapis.com"
DEFAULT_TOKEN_URL = "https://oauth2.googleapis.com"

_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=255, pattern=r"^[A-Za-z0-9@.:_-]+$")]
MAX_CHECKED = 256
"""Number of service accounts whose check is remembered."""


class ServiceAccount(msgspec.Struct, frozen=True):
    """What is used of the JSON file of a service account. Its URLs are not: they would get the account's credentials."""

    project_id: _Name
    client_email: _Name
    private_key_id: _Name
    private_key: Annotated[str, msgspec.Meta(max_length=SECRET_CHARS)]

    def __repr__(self) -> str:
        return f"ServiceAccount({self.client_email!r})"


def service_account_of(account: ProviderAccount) -> ServiceAccount:
    """Return the service account of an account that `flaws_of` accepts."""
    return msgspec.json.decode(account.secrets["service_account"], type=ServiceAccount)


def _service_account(value: Any) -> str | None:
    if not isinstance(value, str) or len(value) > SECRET_CHARS:
        return f"must be the text of the JSON file of a service account, at most {SECRET_CHARS} characters"
    return _flaw_of_key(value)


@lru_cache(maxsize=MAX_CHECKED)
def _flaw_of_key(value: str) -> str | None:
    """Check a key, which takes longer than all the rest of a message."""
    try:
        key = load_pem_private_key(msgspec.json.decode(value, type=ServiceAccount).private_key.encode(), None)
    except (msgspec.DecodeError, ValueError, TypeError, UnsupportedAlgorithm):
        return "must be the JSON of a service account with project_id, client_email, private_key_id and private_key"
    return None if isinstance(key, rsa.RSAPrivateKey) else "must have an RSA private_key"


SETTINGS: Mapping[str, AccountField] = {"url": AccountField(check.text), "token_url": AccountField(check.text)}
SECRETS: Mapping[str, AccountField] = {"service_account": AccountField(_service_account, required=True)}


def flaws_of(settings: Mapping[str, Any], secrets: Mapping[str, Any], hosts: ProviderHosts) -> list[Flaw]:
    """Return the flaws of an FCM account."""
    flaws = flaws_in_settings(settings, SETTINGS) + flaws_in_secrets(secrets, SECRETS)
    for name in SETTINGS:
        if (flaw := flaw_of_url(settings.get(name), DOMAIN, hosts, name)) is not None:
            flaws.append(flaw)
    return flaws
