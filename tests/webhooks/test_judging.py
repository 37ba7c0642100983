"""The judgement of a call: success, retry, or final failure."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonday.runtime.clock import SystemClock
from noonday.webhooks.addresses import Networks
from noonday.webhooks.calling import CallError, ErrorKind, Exchange, Timings, WebhookClient, WebhookRequest
from noonday.webhooks.judging import CallVerdict, Judgement, JudgingSettings, judge
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
        (200, CallVerdict.SUCCEEDED),
        (204, CallVerdict.SUCCEEDED),
        (299, CallVerdict.SUCCEEDED),
        (101, CallVerdict.FAILED_FOR_GOOD),
        (301, CallVerdict.FAILED_FOR_GOOD),
        (304, CallVerdict.FAILED_FOR_GOOD),
        (400, CallVerdict.FAILED_FOR_GOOD),
        (404, CallVerdict.FAILED_FOR_GOOD),
        (408, CallVerdict.RETRY),
        (410, CallVerdict.GONE),
        (425, CallVerdict.RETRY),
        (429, CallVerdict.RETRY),
        (489, CallVerdict.FAILED_FOR_GOOD),
        (500, CallVerdict.RETRY),
        (503, CallVerdict.RETRY),
        (599, CallVerdict.RETRY),
    ],
)
def test_status_decides_the_verdict(status: int, verdict: CallVerdict) -> None:
    assert judge(exchange(status)).verdict is verdict


@pytest.mark.parametrize("kind", [kind for kind in ErrorKind if kind is not ErrorKind.REFUSED_ADDRESS])
def test_error_is_retried_and_counts_against_the_endpoint(kind: ErrorKind) -> None:
    judgement = judge(exchange(kind=kind))
    assert (judgement.verdict, judgement.counts_against_endpoint) == (CallVerdict.RETRY, True)
    assert "words" in judgement.reason


def test_refused_address_is_not_retried_and_does_not_count() -> None:
    judgement = judge(exchange(kind=ErrorKind.REFUSED_ADDRESS))
    assert (judgement.verdict, judgement.counts_against_endpoint) == (CallVerdict.FAILED_FOR_GOOD, False)


@pytest.mark.parametrize("kind", [ErrorKind.BODY, ErrorKind.TIMEOUT_AFTER_SENT])
@pytest.mark.parametrize(
    ("status", "verdict"), [(200, CallVerdict.RETRY), (404, CallVerdict.FAILED_FOR_GOOD), (410, CallVerdict.GONE)]
)
def test_incomplete_success_is_retried_and_incomplete_refusal_stands(
    kind: ErrorKind, status: int, verdict: CallVerdict
) -> None:
    assert judge(exchange(status, kind)).verdict is verdict


@pytest.mark.slow
@given(st.integers(100, 599))
def test_only_5xx_and_429_count_against_the_endpoint(status: int) -> None:
    assert judge(exchange(status)).counts_against_endpoint == (status == 429 or status >= 500)


def test_retried_statuses_can_be_set() -> None:
    settings = JudgingSettings(frozenset({404, 200, 410}))
    verdicts = {status: judge(exchange(status), settings).verdict for status in (404, 503, 200, 410)}
    assert verdicts == {
        404: CallVerdict.RETRY,
        503: CallVerdict.FAILED_FOR_GOOD,
        200: CallVerdict.SUCCEEDED,
        410: CallVerdict.GONE,
    }


@pytest.mark.parametrize("name", ["noonday-do-not-retry", "Upstash-NonRetryable-Error"])
@pytest.mark.parametrize(("value", "verdict"), [("true", CallVerdict.FAILED_FOR_GOOD), ("false", CallVerdict.RETRY)])
def test_receiver_can_prevent_retries(name: str, value: str, verdict: CallVerdict) -> None:
    assert judge(exchange(503, headers={name: value})).verdict is verdict
    assert judge(exchange(200, headers={name: value})).verdict is CallVerdict.SUCCEEDED


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
def test_retry_after_is_seconds_or_a_date_up_to_a_day(value: str, wait_ms: int | None) -> None:
    assert judge(exchange(429, headers={"retry-AFTER": value})).retry_after_ms == wait_ms


@pytest.mark.slow
@given(st.text(max_size=40))
def test_any_retry_after_is_judged(value: str) -> None:
    wait_ms = judge(exchange(503, headers={"Retry-After": value})).retry_after_ms
    assert wait_ms is None or 0 <= wait_ms <= DAY_MS


def test_retry_after_is_ignored_without_a_retry() -> None:
    assert judge(exchange(404, headers={"Retry-After": "5"})).retry_after_ms is None
    assert judge(exchange(200, headers={"Retry-After": "5"})).retry_after_ms is None


@pytest.mark.slow
async def test_real_429_is_retried_after_retry_after() -> None:
    client = WebhookClient(Networks(["127.0.0.0/8"]), SystemClock())
    async with Receiver() as receiver, client:
        answer = await client.call(TENANT, WebhookRequest("POST", receiver.url("/status/429/Retry-After:7")), 10)
    assert judge(answer) == Judgement(CallVerdict.RETRY, "answered 429", 7_000, counts_against_endpoint=True)
