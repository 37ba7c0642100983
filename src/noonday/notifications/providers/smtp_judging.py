"""Rule that decides the outcome of handing an email to a mail server."""

import re
from dataclasses import dataclass
from enum import IntEnum

from noonday.model.notifications.sending import DETAIL_CHARS, AddressEffect, OutcomeKind, ProviderOutcome
from noonday.notifications.providers.outcomes import account_fault

_ENHANCED = re.compile(r"\s*([245])\.([0-9]{1,3})\.([0-9]{1,3})(?![0-9.])")
_OUR_LOGIN = frozenset({530, 534, 535})
_OF_SENDER = frozenset({"5.1.7", "5.1.8"})
_MAILBOX_FULL = 552
_NO_SUCH_MAILBOX = frozenset({550, 551, 553})
_TOO_LARGE = frozenset({"5.2.3", "5.3.4"})


class SmtpStep(IntEnum):
    """How far a conversation with a mail server came."""

    DIAL = 0
    GREETING = 1
    TLS = 2
    AUTH = 3
    MAIL = 4
    RCPT = 5
    DATA = 6
    """The command DATA, before the server asked for the content."""
    BODY = 7
    """The content has begun to leave."""


class SmtpError(IntEnum):
    """Reason why a step got no reply."""

    BROKEN = 0
    """The connection could not be opened, or ended."""
    TIMEOUT = 1
    REFUSED_ADDRESS = 2
    UNTRUSTED = 3
    """The server's certificate is not trusted, or it offers no encryption although the account asks for it."""
    UNREADABLE = 4
    """The reply is not SMTP."""


@dataclass(frozen=True, slots=True)
class SmtpExchange:
    """The last step of a conversation, and its reply or its error."""

    step: SmtpStep
    code: int | None = None
    text: str = ""
    """Text of the reply. It may repeat the address, so it is not shown."""
    error: SmtpError | None = None
    reason: str = ""
    """Description of the error, without address or content."""

    @property
    def enhanced(self) -> str | None:
        """The enhanced status code of the reply, such as 5.1.1."""
        found = _ENHANCED.match(self.text)
        return None if found is None else ".".join(found.groups())


def judge(exchange: SmtpExchange, message_id: str) -> ProviderOutcome:
    """Judge a conversation. A pure function: the same exchange always gets the same outcome.

    A 250 after the content is an acceptance. Before the content has begun to leave, everything without a reply is a retry;
    after it, unknown.
    """
    if exchange.code is None:
        return _judge_error(exchange)
    kind, effect, alerts = _judge_reply(exchange, exchange.code)
    code = " ".join(filter(None, (str(exchange.code), exchange.enhanced)))
    if kind is OutcomeKind.ACCEPTED:
        return ProviderOutcome(kind, provider_id=message_id, code=code)
    detail = f"the mail server replied {code} to {_COMMANDS[exchange.step]}"
    return ProviderOutcome(kind, code=code, detail=detail[:DETAIL_CHARS], effect=effect, alerts=alerts)


_COMMANDS = {
    SmtpStep.DIAL: "the connection",
    SmtpStep.GREETING: "the connection",
    SmtpStep.TLS: "STARTTLS",
    SmtpStep.AUTH: "AUTH",
    SmtpStep.MAIL: "MAIL FROM",
    SmtpStep.RCPT: "RCPT TO",
    SmtpStep.DATA: "DATA",
    SmtpStep.BODY: "the message",
}


def _judge_error(exchange: SmtpExchange) -> ProviderOutcome:
    if exchange.error is None:
        raise ValueError("an exchange has a reply or an error")
    code, detail = exchange.error.name, exchange.reason[:DETAIL_CHARS]
    if exchange.error in (SmtpError.REFUSED_ADDRESS, SmtpError.UNTRUSTED):
        return account_fault(code, detail)
    kind = OutcomeKind.UNKNOWN if exchange.step is SmtpStep.BODY else OutcomeKind.RETRY
    return ProviderOutcome(kind, code=code, detail=detail)


_Ruling = tuple[OutcomeKind, AddressEffect, bool]
_RETRY: _Ruling = (OutcomeKind.RETRY, AddressEffect.KEEP, False)
_UNKNOWN: _Ruling = (OutcomeKind.UNKNOWN, AddressEffect.KEEP, False)
_FAULT: _Ruling = (OutcomeKind.CONFIGURATION_FAULT, AddressEffect.KEEP, True)
_POLICY: _Ruling = (OutcomeKind.REQUEST_REJECTED, AddressEffect.KEEP, True)
_REFUSED: _Ruling = (OutcomeKind.REQUEST_REJECTED, AddressEffect.KEEP, False)
_RETIRED: _Ruling = (OutcomeKind.RECIPIENT_REJECTED, AddressEffect.RETIRE, False)
_UNREACHED: _Ruling = (OutcomeKind.RECIPIENT_REJECTED, AddressEffect.KEEP, False)


def _judge_reply(exchange: SmtpExchange, code: int) -> _Ruling:
    enhanced = exchange.enhanced or ""
    if exchange.step is SmtpStep.BODY and 200 <= code < 300:
        return OutcomeKind.ACCEPTED, AddressEffect.KEEP, False
    if exchange.step is SmtpStep.BODY and code < 400:
        return _UNKNOWN  # not a reply to a message
    if code < 500:
        return _RETRY
    if code in _OUR_LOGIN or exchange.step < SmtpStep.MAIL:
        return _FAULT
    if enhanced in _TOO_LARGE:
        return _REFUSED
    if exchange.step is SmtpStep.MAIL:
        return _REFUSED if code == _MAILBOX_FULL else _FAULT
    return _judge_recipient(exchange.step, code, enhanced)


def _judge_recipient(step: SmtpStep, code: int, enhanced: str) -> _Ruling:
    if enhanced in _OF_SENDER:
        return _FAULT
    if enhanced == "5.2.2" or code == _MAILBOX_FULL:
        return _RETRY  # a full mailbox: the notification's expiry limits the retries
    if enhanced.startswith("5.7."):
        return _POLICY
    if enhanced.startswith("5.1.") and (step is SmtpStep.RCPT or code in _NO_SUCH_MAILBOX):
        return _RETIRED
    # Without 5.1.x a refused recipient may as well be a refusal to relay, so the address is kept.
    return _UNREACHED if step is SmtpStep.RCPT else _REFUSED
