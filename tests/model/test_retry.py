import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonday.model.retry import (
    DEFAULT_POLICY,
    MAX_DELAY_MS,
    Backoff,
    RetryPolicy,
    bound_ms,
    flaws_of,
    wait_ms,
)

policies = st.builds(
    RetryPolicy,
    max_attempts=st.integers(1, 100),
    backoff=st.sampled_from(Backoff),
    delays_ms=st.lists(st.integers(0, MAX_DELAY_MS), min_size=1, max_size=10).map(tuple),
    initial_delay_ms=st.integers(0, MAX_DELAY_MS),
    multiplier=st.floats(1, 100),
    max_delay_ms=st.integers(0, MAX_DELAY_MS),
)


def test_the_default_waits_half_a_minute_two_ten_and_an_hour() -> None:
    assert [bound_ms(DEFAULT_POLICY, attempt) // 1000 for attempt in (1, 2, 3, 4)] == [30, 120, 600, 3600]
    assert DEFAULT_POLICY.max_attempts == 5


def test_the_last_wait_of_a_list_repeats() -> None:
    policy = RetryPolicy(delays_ms=(1, 2, 3))
    assert [bound_ms(policy, attempt) for attempt in range(1, 7)] == [1, 2, 3, 3, 3, 3]


def test_a_fixed_wait_stays() -> None:
    policy = RetryPolicy(backoff=Backoff.FIXED, initial_delay_ms=7)
    assert {bound_ms(policy, attempt) for attempt in range(1, 100)} == {7}


def test_an_exponential_wait_grows_up_to_its_limit() -> None:
    policy = RetryPolicy(backoff=Backoff.EXPONENTIAL, initial_delay_ms=100, multiplier=3, max_delay_ms=5_000)
    assert [bound_ms(policy, attempt) for attempt in range(1, 7)] == [100, 300, 900, 2_700, 5_000, 5_000]


def test_no_attempt_is_too_many_for_an_exponential_wait() -> None:
    policy = RetryPolicy(backoff=Backoff.EXPONENTIAL, multiplier=100, max_delay_ms=MAX_DELAY_MS)
    assert bound_ms(policy, 10_000) == MAX_DELAY_MS


@pytest.mark.slow
@given(policies, st.integers(1, 200), st.text())
def test_a_wait_is_from_nothing_to_its_bound(policy: RetryPolicy, attempt: int, execution: str) -> None:
    assert flaws_of(policy, "") == []
    assert 0 <= wait_ms(policy, attempt, execution) <= bound_ms(policy, attempt) <= MAX_DELAY_MS


@pytest.mark.slow
@given(policies, st.integers(1, 50))
def test_an_exponential_bound_never_falls(policy: RetryPolicy, attempt: int) -> None:
    if policy.backoff is Backoff.EXPONENTIAL:
        assert bound_ms(policy, attempt) <= bound_ms(policy, attempt + 1)


@pytest.mark.slow
@given(policies, st.integers(1, 200), st.text())
def test_a_replay_decides_the_same_wait(policy: RetryPolicy, attempt: int, execution: str) -> None:
    assert wait_ms(policy, attempt, execution) == wait_ms(policy, attempt, execution)


def test_executions_that_fail_together_are_not_retried_together() -> None:
    waits = [wait_ms(DEFAULT_POLICY, 1, f"execution-{n}") for n in range(1000)]
    assert max(sum(low <= wait < low + 3_000 for wait in waits) for low in range(0, 30_000, 3_000)) < 200


@pytest.mark.parametrize(
    ("policy", "pointer", "value", "words"),
    [
        (RetryPolicy(max_attempts=0), "maxAttempts", 0, "1 to 100"),
        (RetryPolicy(max_attempts=101), "maxAttempts", 101, "1 to 100"),
        (RetryPolicy(delays_ms=()), "delaysMs", [], "1 to 100 waits"),
        (RetryPolicy(delays_ms=(1,) * 101), "delaysMs", [1] * 101, "1 to 100 waits"),
        (RetryPolicy(delays_ms=(5, -1)), "delaysMs", [5, -1], "0 to 604800000 ms"),
        (RetryPolicy(delays_ms=(MAX_DELAY_MS + 1,)), "delaysMs", [MAX_DELAY_MS + 1], "7 days"),
        (RetryPolicy(initial_delay_ms=-1), "initialDelayMs", -1, "0 to 604800000 ms"),
        (RetryPolicy(multiplier=0.5), "multiplier", 0.5, "1 to 100"),
        (RetryPolicy(multiplier=float("nan")), "multiplier", None, "1 to 100"),
        (RetryPolicy(max_delay_ms=MAX_DELAY_MS + 1), "maxDelayMs", MAX_DELAY_MS + 1, "7 days"),
    ],
)
def test_a_policy_that_cannot_be_names_its_flaw(policy: RetryPolicy, pointer: str, value: object, words: str) -> None:
    (flaw,) = flaws_of(policy, "/retryPolicy")
    assert flaw.pointer == f"/retryPolicy/{pointer}"
    assert words in flaw.detail
    assert value is None or flaw.value == value


def test_every_flaw_of_a_policy_is_named() -> None:
    flaws = flaws_of(RetryPolicy(max_attempts=0, multiplier=0, max_delay_ms=-1), "/p")
    assert [flaw.pointer for flaw in flaws] == ["/p/maxAttempts", "/p/multiplier", "/p/maxDelayMs"]
