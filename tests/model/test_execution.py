from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonday.model.execution import (
    FINAL,
    HAND_BACK_LONGEST_MS,
    HAND_BACK_WAIT_MS,
    OPEN,
    RETURN_REASONS,
    TRANSITIONS,
    Outcome,
    State,
    Verdict,
    hand_back_wait_ms,
    is_cancel,
    judge,
)
from noonday.model.retry import Backoff, RetryPolicy, wait_ms
from tests.support.crank import is_path

POLICY = RetryPolicy(max_attempts=3, backoff=Backoff.FIXED, initial_delay_ms=1000)
FAILURES = {
    Outcome.FAILED: State.FAILED,
    Outcome.TIMED_OUT: State.TIMED_OUT,
    Outcome.LOST: State.FAILED_WORKER_LOST,
}
RETURNS = (Outcome.SNOOZED, Outcome.INTERRUPTED, Outcome.HANDED_BACK, Outcome.ORPHANED)


def verdict_on(outcome: Outcome, state: State = State.RUNNING, **fields: object) -> Verdict | None:
    known = {"attempt": 1, "policy": POLICY, "execution": "x", **fields}
    return judge(outcome, state=state, **known)  # type: ignore[arg-type]


# The table


def test_every_state_has_its_transitions() -> None:
    assert set(TRANSITIONS) == set(State)


def test_final_states_have_no_transitions() -> None:
    assert {state for state in State if not TRANSITIONS[state]} == FINAL
    assert not OPEN & FINAL


def test_every_state_can_be_reached_and_every_open_one_can_end() -> None:
    reached, ahead = {State.PENDING}, [State.PENDING]
    while ahead:
        new = TRANSITIONS[ahead.pop()] - reached
        reached |= new
        ahead += new
    assert reached == set(State)


@pytest.mark.parametrize(
    ("states", "legal"),
    [
        ([], True),
        ([State.PENDING], True),
        ([State.PENDING, State.RUNNING, State.FAILED, State.PENDING, State.RUNNING, State.SUCCEEDED], True),
        ([State.PENDING, State.PENDING, State.CANCELLED], True),
        ([State.PENDING, State.SUCCEEDED], False),
        ([State.PENDING, State.FAILED], False),
        ([State.RUNNING, State.RUNNING], False),
        ([State.RUNNING, State.DEAD], False),
        ([State.SUCCEEDED, State.PENDING], False),
        ([State.DEAD, State.PENDING], False),
    ],
)
def test_path_has_only_legal_transitions(states: list[State], legal: bool) -> None:
    assert is_path(states) is legal


# The verdict


@pytest.mark.slow
@given(
    outcome=st.sampled_from(Outcome),
    state=st.sampled_from(State),
    attempt=st.integers(1, 5),
    started=st.booleans(),
    retryable=st.booleans(),
    cancel_requested=st.booleans(),
    snooze_ms=st.integers(0, 10_000),
)
def test_verdict_has_only_legal_transitions(
    outcome: Outcome,
    state: State,
    attempt: int,
    started: bool,
    retryable: bool,
    cancel_requested: bool,
    snooze_ms: int,
) -> None:
    verdict = judge(
        outcome,
        state=state,
        attempt=attempt,
        policy=POLICY,
        execution="x",
        started=started,
        retryable=retryable,
        cancel_requested=cancel_requested,
        snooze_ms=snooze_ms,
    )
    if verdict is None:
        return
    assert verdict.transitions
    assert is_path([state, *verdict.transitions])
    assert verdict.rest in OPEN | FINAL
    assert (verdict.wait_ms is not None) == (verdict.rest is State.PENDING)
    assert verdict.attempt == (verdict.rest is State.PENDING and outcome in FAILURES)
    assert attempt + verdict.attempt <= max(attempt, POLICY.max_attempts)
    if cancel_requested and outcome is not Outcome.REVOKED:
        assert verdict.rest is not State.PENDING


@pytest.mark.parametrize(("state", "outcome"), list(product(sorted(set(State) - OPEN), Outcome)))
def test_ended_execution_gets_no_verdict(state: State, outcome: Outcome) -> None:
    assert verdict_on(outcome, state) is None


@pytest.mark.parametrize("outcome", sorted(set(Outcome) - {Outcome.STARTED}))
def test_every_end_of_a_dispatched_execution_is_accepted(outcome: Outcome) -> None:
    assert verdict_on(outcome, State.PENDING) is not None


@pytest.mark.parametrize(
    "outcome", [Outcome.STARTED, Outcome.EXPIRED, Outcome.HANDED_BACK, Outcome.REVOKED, Outcome.ORPHANED]
)
def test_running_execution_cannot_be_reported_as_not_begun(outcome: Outcome) -> None:
    assert verdict_on(outcome, State.RUNNING) is None


def test_end_without_a_start_is_both_transitions() -> None:
    assert verdict_on(Outcome.SUCCEEDED, State.PENDING) == Verdict((State.RUNNING, State.SUCCEEDED))
    assert verdict_on(Outcome.SUCCEEDED, State.RUNNING) == Verdict((State.SUCCEEDED,))


@pytest.mark.parametrize("outcome", [Outcome.SUCCEEDED, *FAILURES])
def test_only_a_run_succeeds_or_fails(outcome: Outcome) -> None:
    verdict = verdict_on(outcome, State.PENDING, started=False)
    assert verdict is not None
    assert verdict.transitions[0] is State.RUNNING


@pytest.mark.parametrize("outcome", [Outcome.CANCELLED, Outcome.INTERRUPTED])
def test_execution_that_did_not_start_is_never_running(outcome: Outcome) -> None:
    verdict = verdict_on(outcome, State.PENDING, started=False)
    assert verdict is not None
    assert State.RUNNING not in verdict.transitions


@pytest.mark.parametrize(("outcome", "failed"), list(FAILURES.items()))
def test_a_failure_is_tried_again_after_a_wait(outcome: Outcome, failed: State) -> None:
    expected = Verdict((failed, State.PENDING), wait_ms(POLICY, 2, "x"), attempt=1)
    assert verdict_on(outcome, attempt=2) == expected


@pytest.mark.parametrize(("outcome", "failed"), list(FAILURES.items()))
def test_the_last_attempt_is_the_last(outcome: Outcome, failed: State) -> None:
    assert verdict_on(outcome, attempt=3) == Verdict((failed, State.DEAD))
    assert verdict_on(outcome, attempt=4) == Verdict((failed, State.DEAD))


def test_failure_that_is_not_retryable_is_not_retried() -> None:
    assert verdict_on(Outcome.FAILED, retryable=False) == Verdict((State.FAILED, State.DEAD))


@pytest.mark.parametrize(("outcome", "failed"), list(FAILURES.items()))
def test_failure_of_a_revoked_execution_is_a_cancellation(outcome: Outcome, failed: State) -> None:
    assert verdict_on(outcome, cancel_requested=True) == Verdict((failed, State.CANCELLED))


@pytest.mark.parametrize("outcome", RETURNS)
def test_returned_execution_uses_up_no_attempt(outcome: Outcome) -> None:
    verdict = verdict_on(outcome, State.PENDING, snooze_ms=77)
    waits = {Outcome.SNOOZED: 77, Outcome.HANDED_BACK: HAND_BACK_WAIT_MS}
    assert verdict is not None
    assert (verdict.rest, verdict.attempt, verdict.wait_ms) == (State.PENDING, 0, waits.get(outcome, 0))


def test_unknown_handler_is_asked_for_less_and_less_often() -> None:
    waits = [hand_back_wait_ms(returned) for returned in range(100)]
    assert waits[:7] == [5_000, 10_000, 20_000, 40_000, 80_000, 160_000, 300_000]
    assert set(waits[6:]) == {HAND_BACK_LONGEST_MS}


@pytest.mark.parametrize("outcome", RETURNS)
def test_revoked_execution_does_not_come_back(outcome: Outcome) -> None:
    verdict = verdict_on(outcome, State.PENDING, cancel_requested=True)
    assert verdict is not None
    assert verdict.rest is State.CANCELLED


def test_the_true_outcome_wins_over_a_cancel_that_came_too_late() -> None:
    assert verdict_on(Outcome.SUCCEEDED, cancel_requested=True) == Verdict((State.SUCCEEDED,))


def test_an_edit_or_a_pause_is_no_cancel() -> None:
    assert not is_cancel(None)
    assert not any(is_cancel(reason) for reason in RETURN_REASONS)
    assert is_cancel("cancelled by ann")
