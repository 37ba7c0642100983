"""Recipients that a double treats in a special way, without any script."""

import re

from noonday.doubles.behaviour import ACCEPT, MAX_DELAY_MS, Behaviour, Cut

_EMAIL = re.compile(r"(mail|rcpt|data|body)-([245][0-9]{2})(?:-([245]\.[0-9]{1,3}\.[0-9]{1,3}))?")
_SLOW = re.compile(r"slow-([0-9]{1,6})")
_EVENT = re.compile(r"event-([a-z_-]{1,40})")
_REJECT = re.compile(r"reject-([A-Z0-9_]{1,60})")
_PHONE = re.compile(r"\+170([0-9])([0-9]{5})[0-9]{2}")
_CUTS = {"drop": Cut.AFTER, "cut-after": Cut.AFTER, "cut-before": Cut.BEFORE}
_MAGIC_PHONES = {
    "+15005550001": "21211",
    "+15005550002": "21612",
    "+15005550003": "21408",
    "+15005550004": "21610",
    "+15005550009": "21614",
}
"""Twilio's own test numbers."""
_ORDERS = {1: ["delivered", "sent"], 2: ["sent", "sent", "delivered", "delivered"], 3: []}


def behaviour_of_token(token: str) -> Behaviour:
    """Return how a push message to a device token of FCM is treated. What follows the last hyphen is free.

    `reject-UNREGISTERED-1` refuses with that error, `slow-2000-1` answers after 2 s, `cut-before-1` and `cut-after-1` cut the
    connection before and after the message is accepted.
    """
    part = token.rpartition("-")[0]
    if found := _REJECT.fullmatch(part):
        return Behaviour(code=found[1])
    if found := _SLOW.fullmatch(part):
        return Behaviour(delay_ms=min(int(found[1]), MAX_DELAY_MS))
    return Behaviour(cut=_CUTS.get(part))


def behaviour_of_email(address: str) -> Behaviour:
    """Return how an email to an address is treated. Its local part decides; parts are joined by `+`.

    `rcpt-550-5.1.1@` refuses RCPT with 550 5.1.1; `mail-`, `data-` and `body-` refuse another step, `mail-` by the sender.
    `slow-2000@` answers after 2 s, `drop@` and `cut-after@` take the message and close without an answer, `cut-before@` closes
    without taking it. `event-bounce@` accepts and reports a bounce (SendGrid); `event-bounce-spamreport@` reports both.
    """
    behaviour = ACCEPT
    for part in address.rpartition("@")[0].lower().split("+"):
        behaviour = _with_part(behaviour, part)
    return behaviour


def _with_part(behaviour: Behaviour, part: str) -> Behaviour:
    fields = {name: getattr(behaviour, name) for name in behaviour.__struct_fields__}
    if found := _EMAIL.fullmatch(part):
        step, code, enhanced = found.groups()
        fields |= {"at": step.upper(), "code": " ".join(filter(None, (code, enhanced)))}
    elif found := _SLOW.fullmatch(part):
        fields["delay_ms"] = min(int(found[1]), MAX_DELAY_MS)
    elif found := _EVENT.fullmatch(part):
        fields["receipts"] = found[1].split("-")
    elif part in _CUTS:
        fields |= {"cut": _CUTS[part], "at": "BODY"}
    return Behaviour(**fields)


def behaviour_of_phone(number: str) -> Behaviour:
    """Return how an SMS to a phone number is treated.

    Twilio's test numbers +1500555000n behave as Twilio documents. Of +170nCCCCCxx the digit n chooses the behaviour, CCCCC is its
    argument, and xx are free: 0 refuses with the error CCCCC, 1 accepts and reports it as undelivered with the error CCCCC,
    2 answers after CCCCC ms, 3 cuts the connection (00001 before accepting, 00002 after), 4 sends receipts reversed (00001),
    repeated (00002) or never (00003).
    """
    if (code := _MAGIC_PHONES.get(number)) is not None:
        return Behaviour(code=code)
    found = _PHONE.fullmatch(number)
    if found is None:
        return ACCEPT
    kind, argument = int(found[1]), int(found[2])
    match kind:
        case 0:
            return Behaviour(code=found[2])
        case 1:
            return Behaviour(receipts=["sent", f"undelivered:{found[2]}"])
        case 2:
            return Behaviour(delay_ms=argument)
        case 3:
            return Behaviour(cut=Cut.AFTER if argument == 2 else Cut.BEFORE)
        case 4:
            return Behaviour(receipts=_ORDERS.get(argument))
        case _:
            return ACCEPT
