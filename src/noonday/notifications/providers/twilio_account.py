"""Settings and secrets of a Twilio account."""

from collections.abc import Mapping
from typing import Any

from noonday.model.errors import Flaw
from noonday.notifications.providers import account_fields as check
from noonday.notifications.providers.account_fields import AccountField, flaws_in_secrets, flaws_in_settings
from noonday.notifications.providers.hosts import ProviderHosts
from noonday.notifications.providers.http_client import flaw_of_url

DOMAIN = "twilio.com"
DEFAULT_URL = "https://api.twilio.com"

_FROM = r"\+[1-9][0-9]{6,14}|[0-9]{3,8}|(?=.*[A-Za-z])[A-Za-z0-9 ]{1,11}"
SETTINGS: Mapping[str, AccountField] = {
    "from": AccountField(
        check.matching(
            _FROM, "a phone number in E.164, a short code, or a sender name of at most 11 letters and digits"
        )
    ),
    "messaging_service_sid": AccountField(check.matching(r"MG[0-9a-f]{32}", "MG and 32 hexadecimal digits")),
    "url": AccountField(check.text),
}
SECRETS: Mapping[str, AccountField] = {
    "account_sid": AccountField(check.matching(r"AC[0-9a-f]{32}", "AC and 32 hexadecimal digits"), required=True),
    # Receipts are signed with it, also if calls use an API key.
    "auth_token": AccountField(check.secret, required=True),
    "api_key_sid": AccountField(check.matching(r"SK[0-9a-f]{32}", "SK and 32 hexadecimal digits")),
    "api_key_secret": AccountField(check.secret),
}


def flaws_of(settings: Mapping[str, Any], secrets: Mapping[str, Any], hosts: ProviderHosts) -> list[Flaw]:
    """Return the flaws of a Twilio account."""
    flaws = flaws_in_settings(settings, SETTINGS) + flaws_in_secrets(secrets, SECRETS)
    if (settings.get("from") is None) == (settings.get("messaging_service_sid") is None):
        flaws.append(Flaw("/settings", "must have exactly one of from and messaging_service_sid"))
    if ("api_key_sid" in secrets) != ("api_key_secret" in secrets):
        flaws.append(Flaw("/secrets", "must have both api_key_sid and api_key_secret, or neither"))
    if (flaw := flaw_of_url(settings.get("url"), DOMAIN, hosts)) is not None:
        flaws.append(flaw)
    return flaws
