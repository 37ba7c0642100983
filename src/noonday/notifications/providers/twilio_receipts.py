"""Receipts of Twilio: their signature, and what they say."""

import hmac
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from urllib.parse import parse_qs, parse_qsl, urlsplit, urlunsplit

from noonday.model.errors import InvalidInput, Unauthorized
from noonday.model.notifications.provider_receipts import ProviderReceipt, ReceiptKind, ReceiptRequest
from noonday.model.notifications.sending import AddressEffect, ProviderAccount
from noonday.notifications.providers.references import reference_in_url
from noonday.notifications.providers.twilio_codes import meaning_of

SIGNATURE = "x-twilio-signature"
MAX_FIELDS = 200
_STANDARD_PORTS = {"https": 443, "http": 80}
_STATES = {
    "sent": ReceiptKind.SENT,
    "partially_delivered": ReceiptKind.SENT,
    "delivered": ReceiptKind.DELIVERED,
    "read": ReceiptKind.DELIVERED,
    "undelivered": ReceiptKind.BOUNCED,
    "failed": ReceiptKind.BOUNCED,
    "canceled": ReceiptKind.BOUNCED,
}
"""Statuses that say more than the acceptance did."""
_STOPS, _STARTS = {"STOP", "STOPALL", "UNSUBSCRIBE", "CANCEL", "END", "QUIT"}, {"START", "YES", "UNSTOP"}

Fields = Sequence[tuple[str, str]]


def read_receipts(account: ProviderAccount, request: ReceiptRequest) -> list[ProviderReceipt]:
    """Return what a call of Twilio says; it may be nothing. Raises Unauthorized unless the account's token has signed the call.

    `request.url` is the public URL that Twilio was given, with its query. Raises InvalidInput if the body is not a form.
    """
    fields = _verified_fields(account, request)
    values = dict(fields)
    if values.get("AccountSid", account.secrets["account_sid"]) != account.secrets["account_sid"]:
        raise Unauthorized("the receipt is of another Twilio account")
    state = values.get("MessageStatus") or values.get("SmsStatus") or ""
    if state in ("received", "receiving"):
        return _inbound(values)
    kind = _STATES.get(state)
    return [] if kind is None else [_receipt(kind, state, values, request.url)]


def signature_of(url: str, fields: Fields, token: str) -> str:
    """Return Twilio's signature: HMAC-SHA1 of the URL and of all names and values, sorted by name."""
    text = url + "".join(name + value for name, value in sorted(set(fields)))
    return b64encode(hmac.digest(token.encode(), text.encode(), "sha1")).decode()


def _verified_fields(account: ProviderAccount, request: ReceiptRequest) -> Fields:
    found = request.headers.get(SIGNATURE, "")
    is_json = "json" in request.headers.get("content-type", "")
    fields: Fields = [] if is_json else _form(request.body)
    expected = [signature_of(url, fields, account.secrets["auth_token"]) for url in _spellings(request.url)]
    # Every comparison is made, so that the time tells nothing.
    matches = [hmac.compare_digest(each.encode(), found.encode("utf-8", "replace")) for each in expected]
    if not any(matches) or (is_json and not _has_hash(request)):
        raise Unauthorized(f"the {SIGNATURE} header is missing or does not match; check auth_token and the public URL")
    return fields


def _form(body: bytes) -> Fields:
    try:
        return parse_qsl(body.decode("utf-8"), keep_blank_values=True, max_num_fields=MAX_FIELDS)
    except ValueError as error:
        raise InvalidInput(f"the body must be a form of at most {MAX_FIELDS} fields in UTF-8") from error


def _has_hash(request: ReceiptRequest) -> bool:
    """Return whether the URL has the hash of a JSON body, which the signature of the URL covers."""
    [named, *_] = parse_qs(urlsplit(request.url).query).get("bodySHA256", [""])
    return hmac.compare_digest(named.lower().encode(), sha256(request.body).hexdigest().encode())


def _spellings(url: str) -> Iterator[str]:
    """Yield the URL without and with the standard port: Twilio may sign either."""
    parts = urlsplit(url)
    yield url
    standard = _STANDARD_PORTS.get(parts.scheme)
    if parts.netloc.endswith(f":{standard}"):
        yield urlunsplit(parts._replace(netloc=parts.netloc.removesuffix(f":{standard}")))
    elif parts.port is None and standard is not None:
        yield urlunsplit(parts._replace(netloc=f"{parts.netloc}:{standard}"))


def _receipt(kind: ReceiptKind, state: str, values: Mapping[str, str], url: str) -> ProviderReceipt:
    notification, number = reference_in_url(url)
    receipt = ProviderReceipt(
        kind, notification, number, values.get("MessageSid"), code=state, address=values.get("To")
    )
    error = values.get("ErrorCode", "")
    if kind is not ReceiptKind.BOUNCED or not (error.isascii() and error.isdecimal() and len(error) < 7):
        return receipt
    meaning = meaning_of(int(error))
    return ProviderReceipt(
        kind,
        notification,
        number,
        receipt.provider_id,
        code=error,
        detail=meaning.phrase,
        effect=meaning.effect,
        address=receipt.address,
        alerts=meaning.alerts,
    )


def _inbound(values: Mapping[str, str]) -> list[ProviderReceipt]:
    """Return what an SMS from a user says: STOP, START, or nothing."""
    word = (values.get("OptOutType") or values.get("Body") or "").strip().upper()
    sid, sender = values.get("MessageSid"), values.get("From")
    if word in _STOPS:
        kind, effect = ReceiptKind.OPTED_OUT, AddressEffect.SUPPRESS
    elif word in _STARTS:
        kind, effect = ReceiptKind.OPTED_IN, AddressEffect.RESTORE
    else:
        return []
    return [ProviderReceipt(kind, None, None, sid, code=word, effect=effect, address=sender)]
