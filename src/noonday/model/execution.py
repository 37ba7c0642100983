"""Executions: their states and legal transitions, the outcomes of dispatches, and the verdict on each outcome."""

from enum import IntEnum

import msgspec

from noonday.model.ids import ExecutionId, JobId, TenantId, WorkerId
from noonday.model.retry import RetryPolicy, wait_ms

HAND_BACK_WAIT_MS, HAND_BACK_LONGEST_MS = 5_000, 300_000
"""First and longest wait, in ms, of an execution that a worker handed back because it does not have its handler."""
KEPT_DISPATCHES = 50
"""Number of dispatches of an execution whose transitions are kept, besides those of its end. An execution that snoozes every
second has 86,400 dispatches a day."""
WATCH_OVERLAP = 1
WATCH_KEY = 2
EDITED, PAUSED, JOB_CANCELLED = "EDITED", "PAUSED", "JOB_CANCELLED"
RETURN_REASONS = frozenset({EDITED, PAUSED})
"""Reasons of revocations that return an execution that has not started to the timeline, without ending the occurrence."""
SPARES_RUNNING = frozenset({EDITED, PAUSED, JOB_CANCELLED})
"""Reasons of revocations that let an execution that has started run to its end."""


def is_cancel(revocation: str | None) -> bool:
    """Return whether a revocation ends its execution, started or not."""
    return revocation is not None and revocation not in RETURN_REASONS


class State(IntEnum):
    """The state of an execution. The numbers are stored."""

    PENDING = 0
    RUNNING = 1
    FAILED = 2
    TIMED_OUT = 3
    FAILED_WORKER_LOST = 4
    SUCCEEDED = 5
    CANCELLED = 6
    EXPIRED = 7
    DEAD = 8


OPEN = frozenset({State.PENDING, State.RUNNING})
FINAL = frozenset({State.SUCCEEDED, State.CANCELLED, State.EXPIRED, State.DEAD})

_FAILURES = (State.FAILED, State.TIMED_OUT, State.FAILED_WORKER_LOST)
TRANSITIONS: dict[State, frozenset[State]] = {
    # PENDING -> PENDING: handed back, revoked by an edit or a pause, fenced, or orphaned.
    State.PENDING: frozenset({State.RUNNING, State.CANCELLED, State.EXPIRED, State.PENDING}),
    State.RUNNING: frozenset({State.SUCCEEDED, *_FAILURES, State.CANCELLED, State.PENDING}),
    **dict.fromkeys(_FAILURES, frozenset({State.PENDING, State.CANCELLED, State.DEAD})),
    **dict.fromkeys(FINAL, frozenset()),
}


class Cause(IntEnum):
    """Reason why an execution exists."""

    SCHEDULE = 0
    TRIGGER = 1
    BACKFILL = 2
    RETRY_OF = 3


class Outcome(IntEnum):
    """The outcome of one dispatch. The numbers are stored."""

    STARTED = 0
    SUCCEEDED = 1
    FAILED = 2
    TIMED_OUT = 3
    CANCELLED = 4
    SNOOZED = 5
    INTERRUPTED = 6
    LOST = 7
    EXPIRED = 8
    HANDED_BACK = 9
    REVOKED = 10
    ORPHANED = 11
    """No worker ever reported the dispatch: the bus lost it, or orphan recovery found it."""


class Failure(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """An error as people see it."""

    type: str
    message: str
    traceback: str | None = None
    retryable: bool = True


GONE = "EndpointGone"
"""The type of a failure after which further runs of the job are pointless: the receiver wants no more calls."""


class Verdict(msgspec.Struct, frozen=True):
    """The effect of an outcome on its execution."""

    transitions: tuple[State, ...]
    """The states that follow the present one. The execution stays in the last."""
    wait_ms: int | None = None
    """Wait before the next dispatch, if the last state is PENDING."""
    attempt: int = 0
    """Number of attempts that this adds."""

    @property
    def rest(self) -> State:
        return self.transitions[-1]


# Outcomes of dispatches that did not start, and outcomes of dispatches that ran. The other outcomes may be either.
_NOT_BEGUN = frozenset({Outcome.EXPIRED, Outcome.HANDED_BACK, Outcome.REVOKED, Outcome.ORPHANED})
_RAN = frozenset({Outcome.SUCCEEDED, Outcome.FAILED, Outcome.TIMED_OUT, Outcome.LOST})
_FAILED = {
    Outcome.FAILED: State.FAILED,
    Outcome.TIMED_OUT: State.TIMED_OUT,
    Outcome.LOST: State.FAILED_WORKER_LOST,
}
_RETURNED = {
    Outcome.INTERRUPTED: 0,
    Outcome.REVOKED: 0,
    Outcome.ORPHANED: 0,
}


def hand_back_wait_ms(returned: int) -> int:
    """Return how long an execution waits that was returned `returned` times without an attempt. The wait doubles."""
    return min(HAND_BACK_LONGEST_MS, HAND_BACK_WAIT_MS << min(returned, 10))


def judge(
    outcome: Outcome,
    *,
    state: State,
    attempt: int,
    policy: RetryPolicy,
    execution: str,
    started: bool = True,
    retryable: bool = True,
    cancel_requested: bool = False,
    snooze_ms: int = 0,
    returned: int = 0,
) -> Verdict | None:
    """Return the verdict on an outcome of an execution in `state`, or None if the transition is not legal.

    If cancellation was requested, a failure or return becomes CANCELLED, and no attempt follows. `snooze_ms` is the wait of a
    snoozed execution and the shortest wait of a failed one. `returned` is how often the execution was returned without an
    attempt.
    """
    if state not in OPEN:
        return None
    if outcome in _NOT_BEGUN and state is State.RUNNING:
        return None
    ran = outcome in _RAN or (started and outcome not in _NOT_BEGUN)
    begun = (State.RUNNING,) if state is State.PENDING and ran else ()
    if outcome is Outcome.STARTED:
        return Verdict(begun) if begun else None
    if outcome is Outcome.SUCCEEDED:
        return Verdict((*begun, State.SUCCEEDED))
    if outcome is Outcome.EXPIRED:
        return Verdict((State.EXPIRED,))
    if outcome is Outcome.CANCELLED:
        return Verdict((*begun, State.CANCELLED))
    if outcome in _FAILED:
        failed = (*begun, _FAILED[outcome])
        if cancel_requested:
            return Verdict((*failed, State.CANCELLED))
        if not retryable or attempt >= policy.max_attempts:
            return Verdict((*failed, State.DEAD))
        wait = max(snooze_ms, wait_ms(policy, attempt, execution))
        return Verdict((*failed, State.PENDING), wait, attempt=1)
    if cancel_requested and outcome is not Outcome.REVOKED:
        return Verdict((*begun, State.CANCELLED))
    if outcome is Outcome.HANDED_BACK:
        wait = hand_back_wait_ms(returned)
    else:
        wait = snooze_ms if outcome is Outcome.SNOOZED else _RETURNED[outcome]
    return Verdict((*begun, State.PENDING), wait)


class Execution(msgspec.Struct, frozen=True):
    """An execution as it is stored. `progress` and `result` are ciphertext."""

    id: ExecutionId
    job_id: JobId
    tenant: TenantId
    nominal_ms: int
    due_ms: int
    """The due time of the first dispatch."""
    state: State
    attempt: int
    dispatch: int
    revision: int
    cause: Cause
    pool: str
    handler: str
    lane: int
    created_ms: int
    fired_ms: int | None = None
    """Time when the present dispatch was fired. None while the execution waits on the timeline or is buffered."""
    buffered: int = 0
    """1 if the execution waits for an earlier open one to close. It has no row on the timeline."""
    watch: int = 0
    """WATCH_OVERLAP, WATCH_KEY: closing this execution looks for others that wait for it."""
    slots: tuple[str, ...] = ()
    """The slots that the execution occupies while it is dispatched: a concurrency key, and caps of its tenant and its pool."""
    waits_until_ms: int | None = None
    """The due time of its dispatch row on the timeline. None if it has no such row, or one without a due time."""
    worker_id: WorkerId | None = None
    started_ms: int | None = None
    finished_ms: int | None = None
    revocation: str | None = None
    """The reason of its revocation. None if it is not revoked."""
    failure: str | None = None
    progress: bytes | None = None
    result: bytes | None = None
    retry_of: ExecutionId | None = None
    transitions: str = ""
    """Comma-separated JSON arrays [state, at_ms, worker or null, reason or null], one for each transition. Append-only."""
    suspended_until_ms: int | None = None
    """The former due time of a dispatch row that is suspended, and so has none."""

    @property
    def awaits_start(self) -> bool:
        """True if the execution is dispatched and not known to have started."""
        return self.state is State.PENDING and self.fired_ms is not None
