"""Receipts of SendGrid: their signature, and what they say."""

import base64
import binascii
from typing import Any

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from noonday.model.errors import InvalidInput, Unauthorized
from noonday.model.notifications.provider_receipts import ProviderReceipt, ReceiptKind, ReceiptRequest
from noonday.model.notifications.sending import CODE_CHARS, PROVIDER_ID_CHARS, AddressEffect, ProviderAccount
from noonday.notifications.providers.references import reference_of
from noonday.notifications.providers.sendgrid_account import read_public_key

SIGNATURE = "x-twilio-email-event-webhook-signature"
TIMESTAMP = "x-twilio-email-event-webhook-timestamp"
MAX_EVENTS = 10_000
_SIGNATURE_CHARS, _TIMESTAMP_CHARS = 200, 20
_MAX_SECONDS = 4_102_444_800
"""2100-01-01."""

_KINDS = {
    "delivered": (ReceiptKind.DELIVERED, AddressEffect.KEEP),
    "dropped": (ReceiptKind.BOUNCED, AddressEffect.KEEP),
    "bounce": (ReceiptKind.BOUNCED, AddressEffect.RETIRE),
    "open": (ReceiptKind.OPENED, AddressEffect.KEEP),
    "click": (ReceiptKind.CLICKED, AddressEffect.KEEP),
    "spamreport": (ReceiptKind.OPTED_OUT, AddressEffect.SUPPRESS),
    "unsubscribe": (ReceiptKind.OPTED_OUT, AddressEffect.SUPPRESS),
    "group_unsubscribe": (ReceiptKind.OPTED_OUT, AddressEffect.SUPPRESS),
    "group_resubscribe": (ReceiptKind.OPTED_IN, AddressEffect.RESTORE),
}
"""Events that say more than the acceptance did. `processed` is the acceptance, and `deferred` is SendGrid retrying."""
_BLOCKED = "blocked"
"""Type of a bounce that is about this email, not about the address."""


def read_receipts(account: ProviderAccount, request: ReceiptRequest) -> list[ProviderReceipt]:
    """Return what a batch of events says. Raises Unauthorized unless the account's key has signed the bytes of the body.

    Raises InvalidInput if the body is not a list of at most MAX_EVENTS events. An event that names nothing of ours, such as that
    of another sender of the account, is left out.
    """
    _verify(account, request)
    try:
        events = msgspec.json.decode(request.body, type=list[dict[str, Any]])
    except msgspec.DecodeError as error:
        raise InvalidInput(f"the body must be a list of events: {error}") from error
    if len(events) > MAX_EVENTS:
        raise InvalidInput(f"the body must have at most {MAX_EVENTS} events, and has {len(events)}")
    return [receipt for event in events if (receipt := _receipt_of(event)) is not None]


def _verify(account: ProviderAccount, request: ReceiptRequest) -> None:
    key = account.settings.get("verification_key")
    if key is None:
        raise Unauthorized(
            "the account has no verification_key; set it to the key that SendGrid shows for the event webhook"
        )
    signature, timestamp = request.headers.get(SIGNATURE, ""), request.headers.get(TIMESTAMP, "")
    if len(signature) > _SIGNATURE_CHARS or len(timestamp) > _TIMESTAMP_CHARS:
        raise Unauthorized(f"the {SIGNATURE} header does not match")
    try:
        signed = timestamp.encode() + request.body
        read_public_key(key).verify(base64.b64decode(signature, validate=True), signed, ec.ECDSA(hashes.SHA256()))
    except (InvalidSignature, binascii.Error, ValueError) as error:
        raise Unauthorized(f"the {SIGNATURE} header is missing or does not match; check verification_key") from error


def _receipt_of(event: dict[str, Any]) -> ProviderReceipt | None:
    known = _KINDS.get(_text(event, "event", CODE_CHARS) or "")
    notification, number = reference_of(event)
    if known is None or notification is None:
        return None
    kind, effect = known
    if kind is ReceiptKind.BOUNCED and event.get("type") == _BLOCKED:
        effect = AddressEffect.KEEP
    at = event.get("timestamp")
    return ProviderReceipt(
        kind,
        notification,
        number,
        # What follows the full stop is about SendGrid's own processing.
        provider_id=(_text(event, "sg_message_id", PROVIDER_ID_CHARS) or "").partition(".")[0] or None,
        event_id=_text(event, "sg_event_id", PROVIDER_ID_CHARS),
        code=_text(event, "status", CODE_CHARS) or _text(event, "event", CODE_CHARS),
        at_ms=at * 1000 if isinstance(at, int) and 0 <= at <= _MAX_SECONDS else None,
        effect=effect,
        address=_text(event, "email", 320),
    )


def _text(event: dict[str, Any], name: str, most: int) -> str | None:
    """Return a field if it is a text that is not too long."""
    value = event.get(name)
    return value if isinstance(value, str) and len(value) <= most else None
