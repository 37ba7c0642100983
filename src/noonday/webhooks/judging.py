"""Rule that decides whether a call succeeded, is retried, or failed permanently."""

from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import StrEnum

import msgspec

from noonday.webhooks.calling import ErrorKind, Exchange

MAX_RETRY_AFTER_MS = 24 * 3_600_000
DO_NOT_RETRY = ("noonday-do-not-retry", "upstash-nonretryable-error")
"""Response headers that forbid a retry if their value is `true`. The second one is from QStash."""


class CallVerdict(StrEnum):
    SUCCEEDED = "SUCCEEDED"
    RETRY = "RETRY"
    FAILED_FOR_GOOD = "FAILED_FOR_GOOD"
    GONE = "GONE"
    """The receiver wants no more calls (410): the task is stopped."""


class JudgingSettings(msgspec.Struct, frozen=True):
    retried_statuses: frozenset[int] = frozenset({408, 425, 429, *range(500, 600)})
    """Statuses that are retried. 2xx is always success, and 410 always stops the task."""


class Judgement(msgspec.Struct, frozen=True):
    verdict: CallVerdict
    reason: str
    """Text for users."""
    retry_after_ms: int | None = None
    """Minimum wait that the receiver asks for, from the end of the exchange; at most a day. Only with RETRY."""
    counts_against_endpoint: bool = False
    """The failure is the endpoint's, not this call's; the breaker counts it."""


DEFAULTS = JudgingSettings()


def judge(exchange: Exchange, settings: JudgingSettings = DEFAULTS) -> Judgement:
    """Judge an exchange. A pure function: the same exchange always gets the same judgement.

    The status decides, except that a 2xx with an incomplete body is retried, because the receiver may have crashed. Without
    a status the error decides: every error is retried, except an address that may not be called. `Retry-After` applies to
    every retried response. A receiver prevents retries with `noonday-do-not-retry: true` or
    `Upstash-NonRetryable-Error: true`, on any status but 2xx.
    """
    status = exchange.status
    if exchange.error is not None and (status is None or _is_success(status)):
        return _judge_error(exchange)
    if status is None:
        raise ValueError("an exchange has a status or an error")
    if _is_success(status):
        return Judgement(CallVerdict.SUCCEEDED, f"answered {status}")
    return _judge_refusal(exchange, status, settings)


def _judge_error(exchange: Exchange) -> Judgement:
    assert exchange.error is not None
    reason = f"{exchange.error.kind}: {exchange.error.detail}"
    if exchange.error.kind is ErrorKind.REFUSED_ADDRESS:
        return Judgement(CallVerdict.FAILED_FOR_GOOD, reason)
    return Judgement(CallVerdict.RETRY, reason, retry_after_ms(exchange), counts_against_endpoint=True)


def _judge_refusal(exchange: Exchange, status: int, settings: JudgingSettings) -> Judgement:
    is_endpoint_failure = status == 429 or 500 <= status < 600
    if status == 410:
        return Judgement(CallVerdict.GONE, "answered 410: the receiver wants no more calls")
    if (header := _do_not_retry_header(exchange)) is not None:
        return Judgement(
            CallVerdict.FAILED_FOR_GOOD, f"answered {status} with {header}: true", None, is_endpoint_failure
        )
    if status in settings.retried_statuses:
        return Judgement(CallVerdict.RETRY, f"answered {status}", retry_after_ms(exchange), is_endpoint_failure)
    return Judgement(CallVerdict.FAILED_FOR_GOOD, _reason_of(status), None, is_endpoint_failure)


def _reason_of(status: int) -> str:
    return f"answered {status}: redirects are not followed" if 300 <= status < 400 else f"answered {status}"


def _is_success(status: int) -> bool:
    return 200 <= status < 300


def _do_not_retry_header(exchange: Exchange) -> str | None:
    return next((name for name in DO_NOT_RETRY if (_header(exchange, name) or "").lower() == "true"), None)


def retry_after_ms(exchange: Exchange) -> int | None:
    """Return the wait of `Retry-After` from the end of the exchange, at most a day; None if it is missing or invalid."""
    value = _header(exchange, "retry-after")
    if value is None:
        return None
    if value.isascii() and value.isdigit():
        # More than eight digits exceed the limit anyway, and int() refuses very long strings.
        return MAX_RETRY_AFTER_MS if len(value) > 8 else min(int(value) * 1000, MAX_RETRY_AFTER_MS)
    at_ms = _http_date_ms(value)
    return None if at_ms is None else min(max(at_ms - exchange.ended_ms, 0), MAX_RETRY_AFTER_MS)


def _http_date_ms(value: str) -> int | None:
    try:
        at = parsedate_to_datetime(value)
        return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError, IndexError, TypeError):
        return None


def _header(exchange: Exchange, name: str) -> str | None:
    return next((value.strip() for each, value in exchange.headers if each.lower() == name), None)
