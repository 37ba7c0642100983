"""The email of a notification at SendGrid: its request, and the rule that judges the answer."""

from email.utils import parseaddr
from typing import Any

import msgspec

from noonday.mail.addresses import flaw_of_address
from noonday.model.errors import InvalidInput
from noonday.model.notice import single_line
from noonday.model.notifications.sending import (
    PROVIDER_ID_CHARS,
    OutcomeKind,
    ProviderAccount,
    ProviderMessage,
    ProviderOutcome,
)
from noonday.notifications.providers.outcomes import account_fault, judge_error, request_rejected
from noonday.notifications.providers.references import reference_fields
from noonday.notifications.providers.sendgrid_account import DEFAULT_URL
from noonday.notifications.providers.smtp_message import SUBJECT_CHARS
from noonday.webhooks.calling import Exchange, WebhookRequest
from noonday.webhooks.judging import MAX_RETRY_AFTER_MS, retry_after_ms

_encode = msgspec.json.Encoder().encode
_NO_SUBJECT = "(no subject)"


def request(account: ProviderAccount, message: ProviderMessage) -> WebhookRequest:
    """Build the request that sends an email. Raises InvalidInput if the content has neither text nor HTML.

    `custom_args` come back with each receipt; SendGrid does not treat them as personal data, so they contain our ids only.
    """
    if flaw_of_address(message.address) is not None:
        raise InvalidInput("the address is not an email address")
    name, sender = parseaddr(str(account.settings["from"]))
    body: dict[str, Any] = {
        "personalizations": [{"to": [{"email": message.address}]}],
        "from": {"email": sender, "name": name} if name else {"email": sender},
        "subject": single_line(message.content.title or "")[:SUBJECT_CHARS] or _NO_SUBJECT,
        "content": _content(message),
        "custom_args": reference_fields(message),
    }
    if message.unsubscribe_url is not None:
        body["headers"] = {
            "List-Unsubscribe": f"<{message.unsubscribe_url}>",
            "List-Unsubscribe-Post": "List-Unsubscribe=One-Click",
        }
    url = str(account.settings.get("url") or DEFAULT_URL).rstrip("/")
    headers = {"Authorization": f"Bearer {account.secrets['api_key']}", "Content-Type": "application/json"}
    return WebhookRequest("POST", f"{url}/v3/mail/send", headers, _encode(body))


def judge(exchange: Exchange) -> ProviderOutcome:
    """Judge the answer to `request`. A pure function: the same exchange always gets the same outcome.

    202 is an acceptance. SendGrid recognizes no repeats, so the answer of a gateway is unknown: SendGrid may have accepted the
    email behind it.
    """
    status = exchange.status
    if status is None:
        return judge_error(exchange)
    code, detail = str(status), f"SendGrid answered {status}"
    match status:
        case 202:
            message_id = _header(exchange, "x-message-id")
            return ProviderOutcome(OutcomeKind.ACCEPTED, message_id and message_id[:PROVIDER_ID_CHARS], code)
        case 400 | 406 | 413 | 415:
            return request_rejected(code, f"{detail}: it refuses the email")
        case 429 | 500 | 503:
            return ProviderOutcome(OutcomeKind.RETRY, None, code, detail, _wait_ms(exchange))
        case _ if status < 300 or status > 500:
            return ProviderOutcome(OutcomeKind.UNKNOWN, code=code, detail=detail)
        case _:
            return account_fault(code, f"{detail}: check api_key, its permissions, and the sender's verification")


def _content(message: ProviderMessage) -> list[dict[str, str]]:
    """Return the parts. SendGrid wants the text first, and refuses empty ones."""
    parts = (("text/plain", message.content.text), ("text/html", message.content.html))
    content = [{"type": kind, "value": value} for kind, value in parts if value]
    if not content:
        raise InvalidInput("an email needs text or html, and the content has neither")
    return content


def _wait_ms(exchange: Exchange) -> int | None:
    """Return the wait of `Retry-After`, else that of `X-RateLimit-Reset`, which is an instant in seconds."""
    wait_ms, reset = retry_after_ms(exchange), _header(exchange, "x-ratelimit-reset") or ""
    if wait_ms is not None or not (reset.isascii() and reset.isdecimal() and len(reset) < 12):
        return wait_ms
    return min(max(int(reset) * 1000 - exchange.ended_ms, 0), MAX_RETRY_AFTER_MS)


def _header(exchange: Exchange, name: str) -> str | None:
    return next((value.strip() for each, value in exchange.headers if each.lower() == name), None)
