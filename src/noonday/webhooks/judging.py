"""Whether a call succeeded, is made again, or is over."""

from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import StrEnum

import msgspec

from noonday.webhooks.calling import ErrorKind, Exchange

MAX_RETRY_AFTER_MS = 24 * 3_600_000
DO_NOT_RETRY = ("noonday-do-not-retry", "upstash-nonretryable-error")
"""Headers by which a receiver says with the value `true` that trying again is of no use; the second is QStash's."""


class Verdict(StrEnum):
    SUCCEEDED = "SUCCEEDED"
    RETRY = "RETRY"
    FAILED_FOR_GOOD = "FAILED_FOR_GOOD"
    GONE = "GONE"
    """The receiver wants no more calls at all: the task stops."""


class JudgingSettings(msgspec.Struct, frozen=True):
    retried_statuses: frozenset[int] = frozenset({408, 425, 429, *range(500, 600)})
    """Statuses after which a call is made again. 2xx is success and 410 the end, whatever is listed."""


class Judgement(msgspec.Struct, frozen=True):
    verdict: Verdict
    reason: str
    """For people."""
    retry_after_ms: int | None = None
    """How long the receiver wants to be left alone, from the end of the exchange; at most a day. With RETRY only."""
    counts_against_endpoint: bool = False
    """It says that the endpoint is ill (a breaker counts it), rather than that this call was wrong."""


DEFAULTS = JudgingSettings()


def judge(exchange: Exchange, settings: JudgingSettings = DEFAULTS) -> Judgement:
    """Decide from the exchange alone, so that the same exchange is always judged the same.

    A status decides, except that a 2xx whose body broke off is no success: whoever sent it may have died on the way. Without
    a status the error decides: everything is tried again, but for an address that may not be dialled. `Retry-After` counts
    wherever a call is made again after an answer. A receiver stops retries with `noonday-do-not-retry: true` or
    `Upstash-NonRetryable-Error: true`, on any status but 2xx.
    """
    status = exchange.status
    if exchange.error is not None and (status is None or _is_success(status)):
        return _judge_error(exchange)
    if status is None:
        raise ValueError("an exchange has a status or an error")
    if _is_success(status):
        return Judgement(Verdict.SUCCEEDED, f"answered {status}")
    return _judge_refusal(exchange, status, settings)


def _judge_error(exchange: Exchange) -> Judgement:
    assert exchange.error is not None
    reason = f"{exchange.error.kind}: {exchange.error.detail}"
    if exchange.error.kind is ErrorKind.REFUSED_ADDRESS:
        return Judgement(Verdict.FAILED_FOR_GOOD, reason)
    return Judgement(Verdict.RETRY, reason, retry_after_ms(exchange), counts_against_endpoint=True)


def _judge_refusal(exchange: Exchange, status: int, settings: JudgingSettings) -> Judgement:
    ill = status == 429 or 500 <= status < 600
    if status == 410:
        return Judgement(Verdict.GONE, "answered 410: the receiver wants no more calls")
    if (header := _stopped_by(exchange)) is not None:
        return Judgement(Verdict.FAILED_FOR_GOOD, f"answered {status} with {header}: true", None, ill)
    if status in settings.retried_statuses:
        return Judgement(Verdict.RETRY, f"answered {status}", retry_after_ms(exchange), ill)
    return Judgement(Verdict.FAILED_FOR_GOOD, _final(status), None, ill)


def _final(status: int) -> str:
    return f"answered {status}: redirects are not followed" if 300 <= status < 400 else f"answered {status}"


def _is_success(status: int) -> bool:
    return 200 <= status < 300


def _stopped_by(exchange: Exchange) -> str | None:
    return next((name for name in DO_NOT_RETRY if (_header(exchange, name) or "").lower() == "true"), None)


def retry_after_ms(exchange: Exchange) -> int | None:
    """How long `Retry-After` asks to wait after the exchange, at most a day; None if it does not say, or says nonsense."""
    value = _header(exchange, "retry-after")
    if value is None:
        return None
    if value.isascii() and value.isdigit():
        # Eight digits are years already, and int() refuses strings of thousands.
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
