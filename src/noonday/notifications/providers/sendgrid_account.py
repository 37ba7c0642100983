"""Settings and secrets of a SendGrid account."""

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_der_public_key

from noonday.model.errors import Flaw
from noonday.notifications.providers import account_fields as check
from noonday.notifications.providers.account_fields import AccountField, flaws_in_secrets, flaws_in_settings
from noonday.notifications.providers.hosts import ProviderHosts
from noonday.notifications.providers.http_client import flaw_of_url

DOMAIN = "sendgrid.com"
DEFAULT_URL = "https://api.sendgrid.com"


def read_public_key(text: str) -> ec.EllipticCurvePublicKey:
    """Return the key that verifies receipts: base64 of DER, without PEM lines. Raises ValueError."""
    try:
        key = load_der_public_key(base64.b64decode(text, validate=True))
    except (binascii.Error, UnsupportedAlgorithm) as error:
        raise ValueError("not a public key") from error
    if isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1):
        return key
    raise ValueError("not a key of P-256")


def _public_key(value: Any) -> str | None:
    try:
        read_public_key(value if isinstance(value, str) else "")
    except ValueError:
        return "must be the verification key of the event webhook as SendGrid shows it: base64 without PEM lines"
    return None


SETTINGS: Mapping[str, AccountField] = {
    "from": AccountField(check.sender, required=True),
    "verification_key": AccountField(_public_key),
    "url": AccountField(check.text),
}
SECRETS: Mapping[str, AccountField] = {"api_key": AccountField(check.secret, required=True)}


def flaws_of(settings: Mapping[str, Any], secrets: Mapping[str, Any], hosts: ProviderHosts) -> list[Flaw]:
    """Return the flaws of a SendGrid account."""
    flaws = flaws_in_settings(settings, SETTINGS) + flaws_in_secrets(secrets, SECRETS)
    if not str(secrets.get("api_key", "")).isascii():
        flaws.append(Flaw("/secrets/api_key", "must be ASCII, as SendGrid shows it"))
    if (flaw := flaw_of_url(settings.get("url"), DOMAIN, hosts)) is not None:
        flaws.append(flaw)
    return flaws
