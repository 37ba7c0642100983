"""Twilio's error codes, and what each means for the message, the address and the account."""

from dataclasses import dataclass

from noonday.model.notifications.sending import AddressEffect, OutcomeKind


@dataclass(frozen=True, slots=True)
class TwilioCode:
    """Meaning of an error code, in an answer or in a receipt."""

    kind: OutcomeKind
    phrase: str
    """Text of ours: Twilio's own message contains the phone number."""
    effect: AddressEffect = AddressEffect.KEEP
    alerts: bool = False


def _retry(phrase: str) -> TwilioCode:
    return TwilioCode(OutcomeKind.RETRY, phrase)


def _fault(phrase: str) -> TwilioCode:
    return TwilioCode(OutcomeKind.CONFIGURATION_FAULT, phrase, alerts=True)


def _request(phrase: str, *, alerts: bool = False) -> TwilioCode:
    return TwilioCode(OutcomeKind.REQUEST_REJECTED, phrase, alerts=alerts)


def _recipient(phrase: str, effect: AddressEffect = AddressEffect.RETIRE) -> TwilioCode:
    return TwilioCode(OutcomeKind.RECIPIENT_REJECTED, phrase, effect)


CODES = {
    20003: _fault("authentication failed; check account_sid and auth_token"),
    20005: _fault("the account is not active"),
    20404: _fault("the account does not exist; check account_sid"),
    20429: _retry("too many requests"),
    20500: _retry("internal error of Twilio"),
    20503: _retry("Twilio is not available"),
    21211: _recipient("the phone number is not valid"),
    21212: _fault("the sender is not a valid number; check from"),
    21408: _fault("SMS to this region are not permitted; enable the region in Twilio's console"),
    21602: _request("the SMS has no text"),
    21603: _fault("the account has no sender; set from or messaging_service_sid"),
    21604: _request("the SMS has no recipient"),
    21606: _fault("the sender cannot send SMS; check from"),
    21608: _fault("a trial account sends to verified numbers only"),
    21610: _recipient("the recipient has sent STOP to this sender", AddressEffect.SUPPRESS),
    21612: _recipient("Twilio has no route to this number"),
    21614: _recipient("the number is not a mobile number"),
    21617: _request("the text is longer than 1600 characters"),
    21701: _fault("the messaging service does not exist; check messaging_service_sid"),
    21703: _fault("the messaging service has no sender; add one in Twilio's console"),
    30001: _retry("the queue of the sender is full"),
    30002: _fault("the account is suspended"),
    30003: TwilioCode(OutcomeKind.RETRY, "the handset is unreachable"),
    30004: _recipient("the recipient or the carrier blocks the message", AddressEffect.KEEP),
    30005: _recipient("the number is unknown"),
    30006: _recipient("the number is a landline or its carrier is unreachable", AddressEffect.KEEP),
    30007: _request("the carrier filtered the message", alerts=True),
    30008: _retry("unknown error of the carrier"),
}
"""The codes that Noonday knows. An unknown code is judged by its HTTP status."""


def meaning_of(code: int, status: int = 400) -> TwilioCode:
    """Return the meaning of a code that came with an HTTP status."""
    known = CODES.get(code)
    if known is not None:
        return known
    if status == 429 or status >= 500:
        return _retry(f"Twilio answered {status} with its error {code}")
    if status in (401, 403, 404):
        return _fault(f"Twilio refuses the account: {status} with its error {code}")
    return _request(f"Twilio refuses the SMS with its error {code}")
