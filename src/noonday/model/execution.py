"""One run of an occurrence, over all its attempts: its states, what may happen to it, and what we do about it."""

from enum import IntEnum
from itertools import pairwise

import msgspec

from noonday.model.retry import RetryPolicy, wait_ms

HAND_BACK_WAIT_MS, HAND_BACK_LONGEST_MS = 5_000, 300_000
"""How long what no worker has a handler for waits: at first, and at most."""
KEPT_DISPATCHES = 50
"""The transitions of so many dispatches of an execution are kept, and those of its end: one that snoozes every second has
86,400 a day."""
WATCH_OVERLAP = 1
WATCH_KEY = 2
EDITED, PAUSED, JOB_CANCELLED = "EDITED", "PAUSED", "JOB_CANCELLED"
RETURN_REASONS = frozenset({EDITED, PAUSED})
"""Revocations that return what has not started to the timeline, without ending the occurrence."""
SPARES_RUNNING = frozenset({EDITED, PAUSED, JOB_CANCELLED})
"""Revocations that let what has started go on to its end."""


def is_cancel(revocation: str | None) -> bool:
    """Whether a revocation ends its execution, started or not."""
    return revocation is not None and revocation not in RETURN_REASONS


class State(IntEnum):
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
    # PENDING -> PENDING: handed back, asked back by an edit, or found by the net under the bus.
    State.PENDING: frozenset({State.RUNNING, State.CANCELLED, State.EXPIRED, State.PENDING}),
    State.RUNNING: frozenset({State.SUCCEEDED, *_FAILURES, State.CANCELLED, State.PENDING}),
    **dict.fromkeys(_FAILURES, frozenset({State.PENDING, State.CANCELLED, State.DEAD})),
    **dict.fromkeys(FINAL, frozenset()),
}


class Cause(IntEnum):
    """Why an execution exists."""

    SCHEDULE = 0
    TRIGGER = 1
    BACKFILL = 2
    RETRY_OF = 3


class Outcome(IntEnum):
    """What happened to one dispatch."""

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
    """It never reached a worker: the bus lost it, or the net found it."""


class Failure(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """An error as people see it."""

    type: str
    message: str
    traceback: str | None = None
    retryable: bool = True


GONE = "EndpointGone"
"""The type of a failure after which the job itself has no point any more."""


class Verdict(msgspec.Struct, frozen=True):
    """What an outcome does to its execution."""

    transitions: tuple[State, ...]
    """The path from the present state; the last one is where it rests."""
    wait_ms: int | None = None
    """For a rest in PENDING: how long until it is handed out again."""
    attempt: int = 0
    """How many attempts this adds."""

    @property
    def rest(self) -> State:
        return self.transitions[-1]


# What only a dispatch that did not begin reports, and what only one that ran does; the rest may be either.
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
    """How long an execution waits that came back without an attempt so many times before: twice as long each time."""
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
    """The verdict on an outcome reported for an execution that is `state` now. None: the move is not a legal one.

    A failure or return of what was asked to be cancelled is CANCELLED: it never gets another attempt. Whoever snoozes comes back
    in `snooze_ms`; whoever failed not before. `returned`: how often it has come back without an attempt.
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


def is_path(states: list[State]) -> bool:
    """Whether these states, in order, only make legal moves."""
    return all(b in TRANSITIONS[a] for a, b in pairwise(states))
