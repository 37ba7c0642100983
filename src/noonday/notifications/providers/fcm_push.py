"""The push message of a notification at FCM: its request, and the rule that judges the answer."""

from typing import Any

import msgspec

from noonday.model.errors import InvalidInput
from noonday.model.notifications.sending import (
    CODE_CHARS,
    PROVIDER_ID_CHARS,
    AddressEffect,
    OutcomeKind,
    ProviderAccount,
    ProviderMessage,
    ProviderOutcome,
)
from noonday.notifications.providers.fcm_account import DEFAULT_URL, ServiceAccount
from noonday.notifications.providers.outcomes import account_fault, judge_error, request_rejected
from noonday.webhooks.calling import Exchange, WebhookRequest
from noonday.webhooks.judging import retry_after_ms

MAX_TTL_SEC = 28 * 86_400
MAX_PAYLOAD = 4_096
QUOTA_WAIT_MS = 60_000
"""Minimum wait after an exceeded quota: FCM counts per minute."""
ID_FIELD = "notification_id"
"""Field of the data that names the notification, so that an app can discard a repeat."""
_RESERVED, _RESERVED_PREFIXES = frozenset({"from", "message_type"}), ("google", "gcm")
_FCM_ERROR = "type.googleapis.com/google.firebase.fcm.v1.FcmError"
_BAD_REQUEST = "type.googleapis.com/google.rpc.BadRequest"
_encode = msgspec.json.Encoder().encode


class _Sent(msgspec.Struct):
    name: str


class _Detail(msgspec.Struct, rename={"kind": "@type", "error_code": "errorCode"}):
    kind: str = ""
    error_code: str = ""


class _Error(msgspec.Struct):
    status: str = ""
    details: list[_Detail] = []


class _Refusal(msgspec.Struct):
    error: _Error


def request(
    account: ProviderAccount, service: ServiceAccount, message: ProviderMessage, access_token: str, now_ms: int
) -> WebhookRequest:
    """Build the request that sends a push message. Raises InvalidInput if the data has a name that FCM reserves."""
    url = str(account.settings.get("url") or DEFAULT_URL).rstrip("/")
    headers = {"Authorization": f"Bearer {access_token}", "Content-Type": "application/json"}
    body = _encode({"message": _message(message, now_ms)})
    return WebhookRequest("POST", f"{url}/v1/projects/{service.project_id}/messages:send", headers, body)


def _message(message: ProviderMessage, now_ms: int) -> dict[str, Any]:
    content = message.content
    shown = {name: text for name, text in (("title", content.title), ("body", content.text)) if text}
    ttl_sec = min(max((message.expires_ms - now_ms) // 1000, 0), MAX_TTL_SEC)
    # A tag makes the device show a repeat once. A collapse key would, too, but a device keeps only four of them.
    android: dict[str, Any] = {"priority": "HIGH" if message.urgent else "NORMAL", "ttl": f"{ttl_sec}s"}
    apns = {
        "apns-priority": "10" if message.urgent else "5",
        "apns-expiration": str(message.expires_ms // 1000),
        "apns-collapse-id": message.notification_id,
    }
    data = _data(message)
    size = len(_encode(data)) + len(_encode(shown))
    if size > MAX_PAYLOAD:
        # FCM refuses it with the code of a bad device token.
        raise InvalidInput(f"the message has {size} bytes of title, text and data; FCM takes at most {MAX_PAYLOAD}")
    made: dict[str, Any] = {
        "token": message.address,
        "data": data,
        "android": android,
        "apns": {"headers": apns},
    }
    if shown:
        made["notification"] = shown
        android["notification"] = {"tag": message.notification_id}
    return made


def _data(message: ProviderMessage) -> dict[str, str]:
    """Return the data as FCM wants it: texts only. Other values are sent as JSON."""
    data = {ID_FIELD: message.notification_id}
    for name, value in message.content.data.items():
        if name in _RESERVED or name.startswith(_RESERVED_PREFIXES):
            raise InvalidInput(f"content.data has the field {name[:100]!r}, which FCM reserves; choose another name")
        data[name] = value if isinstance(value, str) else _encode(value).decode()
    return data


def is_stale_token(exchange: Exchange) -> bool:
    """Return whether FCM refuses the access token, as opposed to the credentials that it uses for other services."""
    return exchange.status == 401 and _refusal_of(exchange)[0] != "THIRD_PARTY_AUTH_ERROR"


def judge(exchange: Exchange) -> ProviderOutcome:
    """Judge the answer to `request`. A pure function: the same exchange always gets the same outcome.

    A bad device token and a bad field are both 400 INVALID_ARGUMENT: the type of the details tells them apart.
    """
    status = exchange.status
    if status is None:
        return judge_error(exchange)
    if status == 200 and (name := _name_of(exchange.body)) is not None:
        return ProviderOutcome(OutcomeKind.ACCEPTED, provider_id=name[:PROVIDER_ID_CHARS], code="200")
    error, has_bad_field = _refusal_of(exchange)
    code = (error or str(status))[:CODE_CHARS]
    detail = f"FCM answered {status}" + (f" {code}" if error else "")
    if error == "UNREGISTERED" or (error == "INVALID_ARGUMENT" and not has_bad_field):
        return ProviderOutcome(OutcomeKind.RECIPIENT_REJECTED, None, code, detail, effect=AddressEffect.RETIRE)
    if error == "SENDER_ID_MISMATCH":
        reason = f"{detail}: the device token belongs to another project"
        return ProviderOutcome(
            OutcomeKind.RECIPIENT_REJECTED, None, code, reason, effect=AddressEffect.RETIRE, alerts=True
        )
    return _judge_status(exchange, status, code, detail)


def _judge_status(exchange: Exchange, status: int, code: str, detail: str) -> ProviderOutcome:
    match status:
        case 429:
            wait_ms = max(retry_after_ms(exchange) or 0, QUOTA_WAIT_MS)
            return ProviderOutcome(OutcomeKind.RETRY, None, code, detail, wait_ms)
        case 500 | 503:
            return ProviderOutcome(OutcomeKind.RETRY, None, code, detail, retry_after_ms(exchange))
        case 400 | 413:
            return request_rejected(code, f"{detail}: it refuses the message")
        case _ if status < 300 or status > 500:
            return ProviderOutcome(OutcomeKind.UNKNOWN, code=code, detail=detail)
        case _:
            return account_fault(code, f"{detail}: check the service account, its project and its credentials for APNs")


def _name_of(body: bytes) -> str | None:
    try:
        return msgspec.json.decode(body, type=_Sent).name or None
    except msgspec.DecodeError:
        return None


def _refusal_of(exchange: Exchange) -> tuple[str | None, bool]:
    """Return FCM's own error code, if there is one, and whether a field of the request is bad."""
    try:
        details = msgspec.json.decode(exchange.body, type=_Refusal).error.details
    except msgspec.DecodeError:
        return None, False
    has_bad_field = any(each.kind == _BAD_REQUEST for each in details)
    return next(
        (each.error_code for each in details if each.kind == _FCM_ERROR and each.error_code), None
    ), has_bad_field
