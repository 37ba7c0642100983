"""The tables of states and transitions agree with the code."""

from typing import get_args

from noonday.api.jobs import JobStateName
from noonday.cli.why import OUTCOMES
from noonday.intake.blockers import BlockedBy
from noonday.model.execution import TRANSITIONS, Outcome, State, judge
from noonday.model.firing import DecisionOutcome
from noonday.model.job import JobState
from noonday.model.retry import RetryPolicy
from tests.docs.pages import row, table

POLICY = RetryPolicy(max_attempts=3)


def test_listed_transitions_are_those_of_the_code() -> None:
    written = {name: targets for name, _, targets in table("states.md", "state", "means", "may move to")}
    assert written == {state.name: _listed(TRANSITIONS[state]) for state in State}


def test_each_outcome_does_what_the_table_says() -> None:
    expected = [
        row(outcome.name, _path(outcome), _path(outcome, attempt=3), _path(outcome, cancel_requested=True))
        for outcome in Outcome
    ]
    assert [row(*cells) for cells in table("states.md", "outcome", "attempts left")] == expected


def test_failure_that_is_not_retryable_is_like_the_last_attempt() -> None:
    for outcome in (Outcome.FAILED, Outcome.TIMED_OUT, Outcome.LOST):
        assert _path(outcome, retryable=False) == _path(outcome, attempt=3)


def test_all_that_can_become_of_an_occurrence_is_listed() -> None:
    written = [name for name, _ in table("states.md", "outcome", "means")]
    assert set(written) == {*(decided.value for decided in DecisionOutcome), "FIRED", "DUE", "PLANNED"}
    assert set(written) == set(OUTCOMES)


def test_all_states_of_a_job_are_listed() -> None:
    written = [name for name, _ in table("states.md", "job state")]
    assert written == list(get_args(JobStateName))
    assert set(written) == {*(state.name for state in JobState), "COMPLETED", "DEAD"}


def test_the_advice_on_occurrences_knows_each_outcome() -> None:
    advised = {name for name, _, _ in table("howto/why-did-it-not-run.md", "it says")}
    assert advised == {*OUTCOMES, "no occurrence"} - {"FIRED", "CANCELLED"}


def test_advice_on_blocked_executions_covers_each_reason() -> None:
    assert [name for name, _, _ in table("howto/why-did-it-not-run.md", "`blockedBy`")] == list(BlockedBy)


def _listed(states: frozenset[State]) -> str:
    return ", ".join(state.name for state in sorted(states))


def _path(outcome: Outcome, *, attempt: int = 1, cancel_requested: bool = False, retryable: bool = True) -> str:
    """The transitions of an outcome, from RUNNING if the outcome can be reported of a run."""
    for state in (State.RUNNING, State.PENDING):
        verdict = judge(
            outcome,
            state=state,
            attempt=attempt,
            policy=POLICY,
            execution="x",
            cancel_requested=cancel_requested,
            retryable=retryable,
        )
        if verdict:
            return ", ".join(state.name for state in verdict.transitions) + (" +1" if verdict.attempt else "")
    raise AssertionError(f"{outcome.name} is never legal")
