"""Outcomes that every kind of provider has."""

from noonday.model.notifications.sending import CODE_CHARS, DETAIL_CHARS, OutcomeKind, ProviderOutcome
from noonday.webhooks.calling import ErrorKind, Exchange

NOTHING_SENT = frozenset({ErrorKind.DNS, ErrorKind.CONNECT, ErrorKind.TLS, ErrorKind.TIMEOUT_BEFORE_SENT})
"""Errors before any byte of the request left."""


def request_rejected(code: str, detail: str) -> ProviderOutcome:
    """Return the outcome of a message that the provider would refuse, so that nothing is sent."""
    return ProviderOutcome(OutcomeKind.REQUEST_REJECTED, code=code, detail=detail[:DETAIL_CHARS])


def account_fault(code: str, detail: str) -> ProviderOutcome:
    """Return the outcome of an account that cannot send anything."""
    return ProviderOutcome(OutcomeKind.CONFIGURATION_FAULT, code=code, detail=detail[:DETAIL_CHARS], alerts=True)


def judge_error(exchange: Exchange) -> ProviderOutcome:
    """Judge an exchange without a status: whether the request left decides.

    Raises ValueError if the exchange has no error.
    """
    error = exchange.error
    if error is None:
        raise ValueError("an exchange has a status or an error")
    code, detail = error.kind.value[:CODE_CHARS], error.detail[:DETAIL_CHARS]
    if error.kind is ErrorKind.REFUSED_ADDRESS:
        return account_fault(code, detail)
    if error.kind in NOTHING_SENT:
        return ProviderOutcome(OutcomeKind.RETRY, code=code, detail=detail)
    return ProviderOutcome(OutcomeKind.UNKNOWN, code=code, detail=detail)
