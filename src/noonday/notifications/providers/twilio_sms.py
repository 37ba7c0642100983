"""The SMS of a notification at Twilio: its request, and the rule that judges the answer."""

import base64
import re
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Annotated
from urllib.parse import quote, urlencode

import msgspec

from noonday.model.errors import InvalidInput
from noonday.model.notifications.sending import OutcomeKind, ProviderAccount, ProviderMessage, ProviderOutcome
from noonday.notifications.providers.outcomes import account_fault, judge_error
from noonday.notifications.providers.references import with_reference
from noonday.notifications.providers.twilio_account import DEFAULT_URL
from noonday.notifications.providers.twilio_codes import meaning_of
from noonday.webhooks.calling import Exchange, WebhookRequest
from noonday.webhooks.judging import retry_after_ms

MAX_VALIDITY_SEC = 36_000
"""Longest time in seconds for which Twilio keeps an SMS that it cannot send."""
LOOKED_AT = 20
"""Number of the newest SMS of a recipient that a look-up compares."""
_SKEW_MS = 5_000
_WINDOW_MS = 120_000
"""Time after the call in which Twilio may have created the SMS."""
_SID = re.compile(r"(SM|MM)[0-9a-f]{32}")


class _Created(msgspec.Struct):
    sid: str


class _Refusal(msgspec.Struct):
    code: Annotated[int, msgspec.Meta(ge=0, le=999_999)]


class _Listed(msgspec.Struct):
    sid: str
    to: str
    body: str | None
    date_created: str
    direction: str = "outbound-api"


class _Page(msgspec.Struct):
    messages: list[_Listed]


def request(account: ProviderAccount, message: ProviderMessage, now_ms: int) -> WebhookRequest:
    """Build the request that creates an SMS. Raises InvalidInput if the content has no text."""
    text = message.content.text or message.content.title
    if not text:
        raise InvalidInput("an SMS needs a text, and the content has none")
    settings = account.settings
    form = {"To": message.address, "Body": text}
    if settings.get("messaging_service_sid") is not None:
        form["MessagingServiceSid"] = settings["messaging_service_sid"]
    else:
        form["From"] = settings["from"]
    if message.callback_url is not None:
        form["StatusCallback"] = with_reference(message.callback_url, message)
    left_sec = (message.expires_ms - now_ms) // 1000
    if left_sec < MAX_VALIDITY_SEC:
        form["ValidityPeriod"] = str(max(left_sec, 1))
    headers = {**_headers(account), "Content-Type": "application/x-www-form-urlencoded"}
    return WebhookRequest("POST", _url(account), headers, urlencode(form).encode())


def judge(exchange: Exchange) -> ProviderOutcome:
    """Judge the answer to `request`. A pure function: the same exchange always gets the same outcome.

    201 is an acceptance. Twilio's own error code decides about a refusal. A server error that does not come from Twilio itself,
    such as that of a gateway, is unknown, because Twilio may have created the SMS behind it.
    """
    status = exchange.status
    if status is None:
        return judge_error(exchange)
    if status == 201:
        return ProviderOutcome(OutcomeKind.ACCEPTED, provider_id=_sid_of(exchange.body), code="201")
    if (code := _code_of(exchange.body)) is not None and status >= 400:
        meaning = meaning_of(code, status)
        wait_ms = retry_after_ms(exchange) if meaning.kind is OutcomeKind.RETRY else None
        return ProviderOutcome(
            meaning.kind, None, str(code), meaning.phrase, wait_ms, effect=meaning.effect, alerts=meaning.alerts
        )
    return _judge_status(exchange, status)


def _judge_status(exchange: Exchange, status: int) -> ProviderOutcome:
    code, detail = str(status), f"Twilio answered {status} without an error code"
    if status in (429, 503):
        return ProviderOutcome(OutcomeKind.RETRY, code=code, detail=detail, retry_after_ms=retry_after_ms(exchange))
    if status < 300 or status >= 500:
        return ProviderOutcome(OutcomeKind.UNKNOWN, code=code, detail=detail)
    if status == 400:
        return ProviderOutcome(OutcomeKind.REQUEST_REJECTED, code=code, detail=detail)
    return account_fault(code, detail)


def look_up_request(account: ProviderAccount, message: ProviderMessage) -> WebhookRequest:
    """Build the request that lists the newest SMS of the recipient."""
    query = urlencode({"To": message.address, "PageSize": LOOKED_AT}, quote_via=quote)
    return WebhookRequest("GET", f"{_url(account)}?{query}", _headers(account))


def found_in(exchange: Exchange, message: ProviderMessage, since_ms: int) -> ProviderOutcome | None:
    """Return ACCEPTED if exactly one SMS of the answer has the text of the message and was created just after `since_ms`.

    Twilio does not tell which callback an SMS has, so two equal texts to one recipient within two minutes cannot be told apart.
    """
    if exchange.status != 200 or exchange.truncated:
        return None
    try:
        listed = msgspec.json.decode(exchange.body, type=_Page).messages
    except msgspec.DecodeError:
        return None
    text = message.content.text or message.content.title
    sids = [
        each.sid for each in listed if each.body == text and each.to == message.address and _is_near(each, since_ms)
    ]
    if len(sids) != 1 or not _SID.fullmatch(sids[0]):
        return None
    return ProviderOutcome(OutcomeKind.ACCEPTED, provider_id=sids[0], code="found")


def _is_near(listed: _Listed, since_ms: int) -> bool:
    if not listed.direction.startswith("outbound"):
        return False
    try:
        created = parsedate_to_datetime(listed.date_created)
    except ValueError:
        return False
    created_ms = int((created if created.tzinfo else created.replace(tzinfo=UTC)).timestamp() * 1000)
    return since_ms - _SKEW_MS <= created_ms <= since_ms + _WINDOW_MS


def _url(account: ProviderAccount) -> str:
    base = str(account.settings.get("url") or DEFAULT_URL).rstrip("/")
    return f"{base}/2010-04-01/Accounts/{account.secrets['account_sid']}/Messages.json"


def _headers(account: ProviderAccount) -> dict[str, str]:
    secrets = account.secrets
    user, password = secrets["account_sid"], secrets["auth_token"]
    if "api_key_sid" in secrets:
        user, password = secrets["api_key_sid"], secrets["api_key_secret"]
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def _sid_of(body: bytes) -> str | None:
    try:
        sid = msgspec.json.decode(body, type=_Created).sid
    except msgspec.DecodeError:
        return None
    return sid if _SID.fullmatch(sid) else None


def _code_of(body: bytes) -> int | None:
    try:
        return msgspec.json.decode(body, type=_Refusal).code
    except msgspec.DecodeError:
        return None
