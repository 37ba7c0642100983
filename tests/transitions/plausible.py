"""Rows that a store may have and reports that workers may send, as a strategy of hypothesis chooses them.

An example is one text of bytes, and each choice takes two of them: this costs far less than a strategy for each field, and a
failing example still shrinks to the first options.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from hypothesis import strategies as st

from noonday.model.execution import EDITED, JOB_CANCELLED, PAUSED, WATCH_OVERLAP, Cause, Execution, Outcome, State
from noonday.model.ids import JobId, TenantId, WorkerId
from noonday.model.job import CatchUp, CatchUpPolicy, Concurrency, Job, JobSpec, JobState, Overlap, rule_of
from noonday.model.message import Report
from noonday.model.retry import Backoff, RetryPolicy
from noonday.model.slots import OF_TENANT, of_pool, of_tenant_in
from noonday.transitions.rows import watch_of
from tests.support.factories import MINUTE, NOW_MS, POOL, SECOND, every, execution, failure, job, spec
from tests.transitions.memory import MemoryRows, caps_on, limit_of

T = TypeVar("T")
WORKERS = (WorkerId("w-1"), WorkerId("w-2"))
ORDERED = Concurrency("customer-42", 1, ordered=True)
KEYED = Concurrency("database", 2)
ANY_KEY = (None, KEYED, ORDERED)
OF_WORKERS = tuple(sorted(set(Outcome) - {Outcome.LOST, Outcome.ORPHANED}))
"""Outcomes that workers report."""
UNSTARTED = frozenset({Outcome.EXPIRED, Outcome.HANDED_BACK, Outcome.REVOKED})
MAY_BE_UNSTARTED = frozenset({Outcome.CANCELLED, Outcome.INTERRUPTED, Outcome.SNOOZED})
LATEST_MS = 10 * MINUTE
"""How late, at most, an occurrence is fired."""
_CHOICES = 250


class Choices:
    """Choices that follow from bytes. When they are used up, each choice is the first option."""

    def __init__(self, drawn: bytes) -> None:
        self._drawn, self._at = drawn, 0

    def of(self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]

    def below(self, limit: int) -> int:
        number = int.from_bytes(self._drawn[self._at : self._at + 2], "big")
        self._at += 2
        return number % limit


def chosen(make: Callable[[Choices], T]) -> st.SearchStrategy[T]:
    """Return a strategy of what a function makes of choices."""
    return st.binary(min_size=2 * _CHOICES, max_size=2 * _CHOICES).map(lambda drawn: make(Choices(drawn)))


def job_spec(choose: Choices, keys: Sequence[Concurrency | None] = ANY_KEY) -> JobSpec:
    said: dict[str, Any] = {
        "overlap": choose.of(tuple(Overlap)),
        "concurrency": choose.of(keys),
        "retry_policy": RetryPolicy(choose.of((1, 2, 3, 4)), Backoff.FIXED, initial_delay_ms=MINUTE),
        "start_deadline_sec": choose.of((None, None, 90)),
    }
    if choose.of((True, False, False, False)):
        return spec(**said)
    said["catch_up"] = CatchUp(choose.of((CatchUpPolicy.ALL, *CatchUpPolicy)), choose.of((86_400, 60)))
    return every(choose.of((60, 7, 1)), max_runs=choose.of((None, 3, 1)), spread_sec=choose.of((None, 5)), **said)


def plausible_job(choose: Choices, number: int, keys: Sequence[Concurrency | None] = ANY_KEY) -> Job:
    """Return a job with a fixed id, which sorts by `number`."""
    return job(
        job_spec(choose, keys),
        id=JobId(f"01900000-0000-7000-8000-{number:012x}"),
        tenant=TenantId(choose.of(("acme", "acme", "other"))),
        now_ms=NOW_MS - choose.below(LATEST_MS // SECOND) * SECOND,
        state=choose.of((JobState.ACTIVE, JobState.ACTIVE, JobState.ACTIVE, JobState.PAUSED)),
    )


def rows(
    choose: Choices,
    most_jobs: int = 2,
    keys: Sequence[Concurrency | None] = ANY_KEY,
    open_executions: Sequence[int] = (0, 1, 2, 3),
) -> MemoryRows:
    """Return some jobs, each with its fire row and a few open executions that are not buffered, and caps."""
    jobs = [plausible_job(choose, number, keys) for number in range(1 + choose.below(most_jobs))]
    executions = [row for one in jobs for row in executions_of(choose, one, choose.of(open_executions))]
    caps = {key: choose.below(4) for key in caps_on(jobs) if choose.of((False, False, True))}
    return MemoryRows.of(jobs, executions, caps)


def executions_of(choose: Choices, of: Job, count: int) -> list[Execution]:
    """Return open executions of a job: some that are dispatched or wait, and, behind them, buffered ones."""
    count = min(count, 1) if of.spec.one_shot else count
    first = [_unbuffered(choose, of, _time(of, number)) for number in range(count)]
    most = {Overlap.BUFFER_ALL: 2, Overlap.BUFFER_ONE: 1, Overlap.CANCEL_OTHER: 1}.get(of.spec.overlap, 0)
    if of.spec.one_shot or not first:
        most = 0
    return first + [
        execution(of, _time(of, number), fired_ms=None, buffered=1, watch=watch_of(of.spec))
        for number in range(count, count + choose.below(most + 1))
    ]


def _unbuffered(choose: Choices, of: Job, nominal_ms: int) -> Execution:
    assert of.spec.retry_policy is not None
    attempt = 1 + choose.below(of.spec.retry_policy.max_attempts)
    dispatch = attempt + choose.of((0, 0, 1, 60))
    said: dict[str, Any] = {"attempt": attempt, "dispatch": dispatch, "cause": choose.of(tuple(Cause))}
    # An execution that was created while its job forbade overlap stays watched.
    said["watch"] = watch_of(of.spec) | choose.of((0, 0, 0, WATCH_OVERLAP))
    own = (slot,) if (slot := limit_of(of).slot) else ()
    place = choose.of(("dispatched", "running", "running", "waiting"))
    if place == "waiting":
        is_paused = of.state is JobState.PAUSED
        keeps_slot = of.spec.ordering_key and dispatch > 1 and not is_paused
        waits_until_ms = NOW_MS + choose.of((0, -MINUTE, MINUTE))
        said |= {"fired_ms": None, "slots": own if keeps_slot else ()}
        said["suspended_until_ms" if is_paused else "waits_until_ms"] = waits_until_ms
    else:
        caps = choose.of(((), (OF_TENANT,), (of_tenant_in(POOL), of_pool(POOL))))
        revocation = choose.of((None, None, None, EDITED, PAUSED, JOB_CANCELLED, "cancelled by ann"))
        if of.state is JobState.PAUSED and revocation is None and said["cause"] is Cause.SCHEDULE:
            revocation = PAUSED  # a pause revokes everything that is dispatched; people may ask for more after it
        said |= {"fired_ms": NOW_MS - SECOND, "slots": (*own, *caps), "revocation": revocation}
    if place == "running":
        said |= {"state": State.RUNNING, "worker_id": choose.of(WORKERS), "started_ms": NOW_MS - SECOND}
    return execution(of, nominal_ms, **said)


def _time(of: Job, number: int) -> int:
    """Return a past time of a job's schedule: the later, the larger the number."""
    if of.spec.one_shot:
        return of.anchor_ms
    return list(rule_of(of.spec, of.anchor_ms).take(NOW_MS - 2 * LATEST_MS, number + 1))[-1]


def reports_of(choose: Choices, store: MemoryRows) -> list[Report]:
    """Return reports about the executions of a store, in any order, some of them about the same one."""
    known = sorted(store.executions)
    count = 1 + choose.below(4) if known else 0
    return [report_about(choose, store.executions[choose.of(known)]) for _ in range(count)]


def report_about(choose: Choices, row: Execution, outcomes: Sequence[Outcome] = OF_WORKERS) -> Report:
    """Return a report of the present dispatch of an execution, by its worker if it is bound to one."""
    outcome = choose.of(outcomes)
    started = outcome not in UNSTARTED and not (outcome in MAY_BE_UNSTARTED and choose.of((True, False)))
    has_failed = outcome in (Outcome.FAILED, Outcome.TIMED_OUT)
    return Report(
        execution_id=row.id,
        dispatch=row.dispatch,
        worker_id=row.worker_id or choose.of(WORKERS),
        outcome=int(outcome),
        started_ms=NOW_MS - SECOND if started else 0,
        ended_ms=NOW_MS - choose.of((0, SECOND)),
        failure=failure(retryable=choose.of((True, True, False))) if has_failed else None,
        snooze_ms=MINUTE if outcome is Outcome.SNOOZED else 0,
        pool=row.pool,
        job_id=row.job_id,
        tenant=row.tenant,
    )
