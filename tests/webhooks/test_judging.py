"""Whether a call succeeded, is made again, or is over."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonday.runtime.clock import SystemClock
from noonday.webhooks.addresses import Networks
from noonday.webhooks.calling import Caller, CallError, ErrorKind, Exchange, Request, Timings
from noonday.webhooks.judging import Judgement, JudgingSettings, Verdict, judge
from tests.support.factories import TENANT
from tests.webhooks.receiver import Receiver

ENDED_MS = 784_111_777_000  # Sun, 06 Nov 1994 08:49:37 GMT
DAY_MS = 86_400_000


def exchange(
    status: int | None = None, kind: ErrorKind | None = None, headers: dict[str, str] | None = None
) -> Exchange:
    error = None if kind is None else CallError(kind, "words")
    return Exchange(ENDED_MS, Timings(1.0), status, tuple((headers or {}).items()), error=error)


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        (200, Verdict.SUCCEEDED),
        (204, Verdict.SUCCEEDED),
        (299, Verdict.SUCCEEDED),
        (101, Verdict.FAILED_FOR_GOOD),
        (301, Verdict.FAILED_FOR_GOOD),
        (304, Verdict.FAILED_FOR_GOOD),
        (400, Verdict.FAILED_FOR_GOOD),
        (404, Verdict.FAILED_FOR_GOOD),
        (408, Verdict.RETRY),
        (410, Verdict.GONE),
        (425, Verdict.RETRY),
        (429, Verdict.RETRY),
        (489, Verdict.FAILED_FOR_GOOD),
        (500, Verdict.RETRY),
        (503, Verdict.RETRY),
        (599, Verdict.RETRY),
    ],
)
def test_a_status_decides(status: int, verdict: Verdict) -> None:
    assert judge(exchange(status)).verdict is verdict


@pytest.mark.parametrize("kind", [kind for kind in ErrorKind if kind is not ErrorKind.REFUSED_ADDRESS])
def test_an_error_is_tried_again_and_counts_against_the_endpoint(kind: ErrorKind) -> None:
    judgement = judge(exchange(kind=kind))
    assert (judgement.verdict, judgement.counts_against_endpoint) == (Verdict.RETRY, True)
    assert "words" in judgement.reason


def test_a_refused_address_is_never_tried_again_and_is_not_the_endpoints_illness() -> None:
    judgement = judge(exchange(kind=ErrorKind.REFUSED_ADDRESS))
    assert (judgement.verdict, judgement.counts_against_endpoint) == (Verdict.FAILED_FOR_GOOD, False)


@pytest.mark.parametrize("kind", [ErrorKind.BODY, ErrorKind.TIMEOUT_AFTER_SENT])
@pytest.mark.parametrize(
    ("status", "verdict"), [(200, Verdict.RETRY), (404, Verdict.FAILED_FOR_GOOD), (410, Verdict.GONE)]
)
def test_half_a_success_is_none_and_half_a_refusal_is_one(kind: ErrorKind, status: int, verdict: Verdict) -> None:
    assert judge(exchange(status, kind)).verdict is verdict


@given(st.integers(100, 599))
def test_only_5xx_and_429_count_against_the_endpoint(status: int) -> None:
    assert judge(exchange(status)).counts_against_endpoint == (status == 429 or status >= 500)


def test_the_statuses_that_are_retried_can_be_set() -> None:
    settings = JudgingSettings(frozenset({404, 200, 410}))
    verdicts = {status: judge(exchange(status), settings).verdict for status in (404, 503, 200, 410)}
    assert verdicts == {
        404: Verdict.RETRY,
        503: Verdict.FAILED_FOR_GOOD,
        200: Verdict.SUCCEEDED,
        410: Verdict.GONE,
    }


@pytest.mark.parametrize("name", ["noonday-do-not-retry", "Upstash-NonRetryable-Error"])
@pytest.mark.parametrize(("value", "verdict"), [("true", Verdict.FAILED_FOR_GOOD), ("false", Verdict.RETRY)])
def test_a_receiver_can_stop_retries(name: str, value: str, verdict: Verdict) -> None:
    assert judge(exchange(503, headers={name: value})).verdict is verdict
    assert judge(exchange(200, headers={name: value})).verdict is Verdict.SUCCEEDED


@pytest.mark.parametrize(
    ("value", "wait_ms"),
    [
        ("0", 0),
        ("120", 120_000),
        (" 7 ", 7_000),
        ("86401", DAY_MS),
        ("9" * 5_000, DAY_MS),
        ("Sun, 06 Nov 1994 08:50:37 GMT", 60_000),
        ("Sunday, 06-Nov-94 08:50:37 GMT", 60_000),
        ("Sun Nov  6 08:50:37 1994", 60_000),
        ("Sun, 06 Nov 1994 08:00:00 GMT", 0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", DAY_MS),
        ("", None),
        ("-5", None),
        ("1.5", None),
        ("soon", None),
        ("١٢", None),
        ("Sun, 99 Nov 1994 08:50:37 GMT", None),
    ],
)
def test_retry_after_is_read_in_seconds_or_as_a_date_and_is_at_most_a_day(value: str, wait_ms: int | None) -> None:
    assert judge(exchange(429, headers={"retry-AFTER": value})).retry_after_ms == wait_ms


@given(st.text(max_size=40))
def test_no_retry_after_breaks_the_judge(value: str) -> None:
    wait_ms = judge(exchange(503, headers={"Retry-After": value})).retry_after_ms
    assert wait_ms is None or 0 <= wait_ms <= DAY_MS


def test_retry_after_says_nothing_where_no_call_follows() -> None:
    assert judge(exchange(404, headers={"Retry-After": "5"})).retry_after_ms is None
    assert judge(exchange(200, headers={"Retry-After": "5"})).retry_after_ms is None


async def test_a_real_429_is_tried_again_when_the_receiver_wants_it() -> None:
    caller = Caller(Networks(["127.0.0.0/8"]), SystemClock())
    async with Receiver() as receiver, caller:
        answer = await caller.call(TENANT, Request("POST", receiver.url("/status/429/Retry-After:7")), 10)
    assert judge(answer) == Judgement(Verdict.RETRY, "answered 429", 7_000, counts_against_endpoint=True)
