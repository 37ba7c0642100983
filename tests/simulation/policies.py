"""Check attempts, retries, timeouts, deadlines and ends of executions against their definitions."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from noonday.model.execution import Cause, State
from noonday.model.ids import stable_fraction
from noonday.model.job import JobSpec, Overlap
from noonday.model.retry import RetryPolicy
from tests.simulation.history import Effect, History
from tests.simulation.lateness import retry_wait_ms
from tests.simulation.rows import Rows, StoredExecution

_FAILURES = (State.FAILED, State.TIMED_OUT, State.FAILED_WORKER_LOST)
EARLY_MS = 2
"""Instants are rounded to milliseconds."""


def check_policies(rows: Rows, history: History, policy: RetryPolicy) -> Iterator[str]:
    """Check all jobs that have requests in the history. `policy`: the retry policy of this run."""
    specs: dict[str, list[JobSpec]] = defaultdict(list)
    for answer in history.asked("create", "replace"):
        if answer.spec is not None:
            specs[answer.target].append(answer.spec)
    effects: dict[str, list[Effect]] = defaultdict(list)
    for effect in history.effects:
        effects[effect.execution].append(effect)
    asked = _requests(history)
    for execution in rows.executions.values():
        definitions = specs.get(execution.job) or [rows.jobs[execution.job].spec]
        yield from _attempts(execution, policy)
        yield from _instant(execution, effects[execution.id], definitions, history)
        yield from _retries(execution, effects[execution.id], policy, history.skew_ms)
        yield from _deadline(execution, effects[execution.id], definitions, history)
        yield from _end(execution, effects[execution.id], definitions, asked, history.skew_ms)


def _instant(
    execution: StoredExecution, effects: Sequence[Effect], definitions: Sequence[JobSpec], history: History
) -> Iterator[str]:
    """I9: no occurrence of a plan starts before its nominal time and the job's part of the spread, apart from the time by
    which the clock of its process was ahead."""
    part = stable_fraction(f"spread/{execution.job}")
    earliest_ms = execution.nominal_ms + min(int((spec.spread_sec or 0) * 1000 * part) for spec in definitions)
    for effect in effects if execution.cause == Cause.SCHEDULE else ():
        early_ms = earliest_ms - effect.start_ms
        if early_ms > 0 and early_ms > history.ahead_ms(effect.process, effect.start_ms):
            yield f"I9: {effect} started {early_ms} ms before its time"


def _attempts(execution: StoredExecution, policy: RetryPolicy) -> Iterator[str]:
    """I5: no execution has more attempts than allowed, and a dead letter has used up all of them unless its failure is not
    retryable."""
    failures = sum(transition.state in _FAILURES for transition in execution.transitions)
    if failures > policy.max_attempts or execution.attempt > policy.max_attempts:
        yield f"I5: {execution.id} failed {failures} times, is at attempt {execution.attempt}, and has {policy.max_attempts}"
    if execution.state is State.DEAD and failures < policy.max_attempts and not _is_final(execution):
        yield f"I5: {execution.id} is DEAD after {failures} of {policy.max_attempts} attempts"


def _is_final(execution: StoredExecution) -> bool:
    """Whether the last failure was not retryable."""
    reason = next(
        (transition.reason for transition in reversed(execution.transitions) if transition.state in _FAILURES), None
    )
    return isinstance(reason, dict) and reason.get("retryable") is False


def _retries(execution: StoredExecution, effects: Sequence[Effect], policy: RetryPolicy, skew_ms: int) -> Iterator[str]:
    """Retries and ends of snoozes are not early, by the clocks of the processes that note the failure and begin the retry."""
    tolerance_ms = EARLY_MS + 2 * skew_ms
    first = {effect.dispatch: effect.start_ms for effect in reversed(effects)}
    dispatch, failures = 0, 0
    for at, transition in enumerate(execution.transitions):
        failures += transition.state in _FAILURES
        if transition.state is not State.PENDING:
            continue
        dispatch += 1
        before = execution.transitions[at - 1]
        wait_ms = 0
        if at and before.state in _FAILURES:
            wait_ms = retry_wait_ms(policy, failures, execution.id)
        elif at and before.state is State.RUNNING and str(transition.reason or "").startswith("SNOOZED"):
            wait_ms = 1_500
        started_ms = first.get(dispatch)
        if wait_ms and started_ms is not None and started_ms < transition.at_ms + wait_ms - tolerance_ms:
            early = transition.at_ms + wait_ms - started_ms
            yield f"retry delay: dispatch {dispatch} of {execution.id} started {early} ms before its {wait_ms} ms were over"


def _deadline(
    execution: StoredExecution, effects: Sequence[Effect], definitions: Sequence[JobSpec], history: History
) -> Iterator[str]:
    """No execution starts for the first time after its start deadline, and none expires before it."""
    deadlines = [spec.start_deadline_sec for spec in definitions if spec.start_deadline_sec is not None]
    if len(deadlines) == len(definitions):
        latest_ms = execution.due_ms + max(deadlines) * 1000 + history.skew_ms
        # A process may die between the start that it announced and the first step of the handler.
        has_started = any(each.state is State.RUNNING and each.at_ms <= latest_ms for each in execution.transitions)
        for effect in () if has_started else effects[:1]:
            checked_ms = history.checks.get((effect.execution, effect.dispatch), 0)
            if effect.start_ms >= checked_ms > latest_ms:
                yield f"start deadline: {effect} was checked at {checked_ms} and started, {checked_ms - latest_ms} ms too late"
    if execution.state is State.EXPIRED:
        ended_ms = execution.transitions[-1].at_ms
        if not deadlines or ended_ms <= execution.due_ms + min(deadlines) * 1000:
            yield f"start deadline: {execution.id} is EXPIRED {ended_ms - execution.due_ms} ms after {execution.due_ms}"


def _end(
    execution: StoredExecution,
    effects: Sequence[Effect],
    definitions: Sequence[JobSpec],
    asked: Mapping[str, set[str]],
    skew_ms: int,
) -> Iterator[str]:
    """Every end has a reason: the run returned, a timeout passed, or a user asked."""
    if execution.state is State.SUCCEEDED and not any(effect.end_ms is not None for effect in effects):
        yield f"outcome: {execution.id} is SUCCEEDED, and no run of it has ended"
    timeouts = [spec.timeout_sec for spec in definitions if spec.timeout_sec is not None]
    for before, after in zip(execution.transitions, execution.transitions[1:], strict=False):
        if after.state is State.TIMED_OUT:
            ran_ms = after.at_ms - before.at_ms
            if not timeouts or ran_ms < min(timeouts) * 1000 - EARLY_MS - 2 * skew_ms:
                yield f"timeout: {execution.id} is TIMED_OUT after {ran_ms} ms"
    if execution.state is State.CANCELLED:
        revocations = asked.get(execution.id, set()) | asked.get(execution.job, set())
        replaced_by_others = any(spec.overlap is Overlap.CANCEL_OTHER for spec in definitions)
        if not revocations and not replaced_by_others:
            yield f"outcome: {execution.id} ({Cause(execution.cause).name}) is CANCELLED, and nobody asked for it"


def _requests(history: History) -> Mapping[str, set[str]]:
    """The requests that may have ended executions, by job and by execution."""
    found: dict[str, set[str]] = defaultdict(set)
    for answer in history.asked("cancel", "delete", "replace", "pause"):
        found[answer.target].add(answer.verb)
    return found
