"""What happened, as the checker needs it: answers to users, effects of handlers, pre-start checks, deaths."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from noonday.model.execution import Outcome
from noonday.model.job import JobSpec
from noonday.model.message import LogEntry, Report

CANCEL_GRACE_MS = 5_000
"""How long a run that was asked to end may go on before it is abandoned."""
ABANDONED = (Outcome.TIMED_OUT, Outcome.CANCELLED, Outcome.INTERRUPTED)
"""What is reported for a run that ignores its end."""


@dataclass
class Effect:
    """One entry into a handler."""

    execution: str
    dispatch: int
    token: int
    process: str
    start_ms: int
    due_ms: int
    payload: Any
    end_ms: int | None = None
    checked_ms: int = 0
    """When the pre-start check was asked for, or earlier: what was acknowledged before it must win."""
    in_thread: bool = False
    """It cannot be cancelled: asked to end, it runs on, and is abandoned after the grace."""


@dataclass(frozen=True)
class Answer:
    """A request that was answered. One whose action ends with `?` was not: it may have happened, or not."""

    action: str
    target: str
    at_ms: int
    value: Any = None
    asked_ms: int = 0
    spec: JobSpec | None = None
    """The definition that was asked for."""
    shown: Any = None
    """What the user was shown."""
    key: tuple[str, str] | None = None
    """(tenant, unique key), if the job was asked for by its key: the request creates it, or updates the job that has the key."""

    @property
    def verb(self) -> str:
        """The action, answered or not."""
        return self.action.rstrip("?")

    @property
    def is_certain(self) -> bool:
        return not self.action.endswith("?")


class Span(NamedTuple):
    """A reason to wait, and how long it holds."""

    why: str
    from_ms: int
    until_ms: int


class Passed(NamedTuple):
    """A message of a pool that a committed offset has passed: it is not delivered again."""

    at_ms: int
    execution: str
    dispatch: int
    fired_ms: int


class Logged(NamedTuple):
    """An entry of the log, and when it was written."""

    partition: int
    at_ms: int
    entry: LogEntry


@dataclass
class OldCopy:
    """Redis became what it was some seconds before. It lacks what was noted in between."""

    copied_ms: int
    at_ms: int
    found_ms: int | None = None
    """When a flag keeper saw that it is an older copy, and ended its generation."""


@dataclass
class History:
    answers: list[Answer] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    looks: dict[tuple[str, int], int] = field(default_factory=dict)
    """(execution, dispatch) -> when the last look before its start was answered."""
    deaths: list[tuple[str, int]] = field(default_factory=list)
    """(process, when it was killed)."""
    cuts: list[tuple[str, str, int, int]] = field(default_factory=list)
    """(process, server, from, until): who could not reach whom."""
    acks: dict[tuple[str, int, str], int] = field(default_factory=dict)
    """(execution, dispatch, process) -> when the first report of it was acknowledged to its worker."""
    flushes: list[int] = field(default_factory=list)
    """When Redis forgot everything."""
    old_copies: list[OldCopy] = field(default_factory=list)
    """When Redis was replaced by an older copy of itself."""
    boots: list[tuple[str, int]] = field(default_factory=list)
    """(process, when it was up)."""
    spans: list[Span] = field(default_factory=list)
    """What else stood in the way, and when."""
    taken: dict[tuple[str, int], dict[str, int]] = field(default_factory=dict)
    """(execution, dispatch) -> processes that had it in hand, and since when."""
    passed: list[Passed] = field(default_factory=list)
    """Messages that committed offsets have passed."""
    log: list[Logged] = field(default_factory=list)
    """What workers and recorders wrote to the log."""
    log_ends: dict[int, int] = field(default_factory=dict)
    """Partition -> when what was written to it was lost."""
    clock_errors: list[tuple[str, int, int]] = field(default_factory=list)
    """(process, since when, by how much its clock was ahead of the reference)."""
    excuses: list[str] = field(default_factory=list)
    """Second runs that a fault explains: which process or server it met, and when."""
    problems: list[str] = field(default_factory=list)
    """What was seen to be wrong while it happened."""

    @property
    def skew_ms(self) -> int:
        """How far any clock was off at most."""
        return max((abs(error_ms) for _, _, error_ms in self.clock_errors), default=0)

    def ahead_ms(self, process: str, at_ms: int) -> int:
        """By how much the clock of a process was ahead in the second before an instant: that much too early it may begin."""
        errors = [(since_ms, error_ms) for name, since_ms, error_ms in self.clock_errors if name == process]
        untils = [*(since_ms for since_ms, _ in errors[1:]), at_ms] if errors else []
        recent = [
            error_ms
            for (since_ms, error_ms), until_ms in zip(errors, untils, strict=True)
            if since_ms <= at_ms and until_ms >= at_ms - 1_000
        ]
        return max((0, *recent))

    def abandoned_ms(self, run: Effect) -> int | None:
        """When the end of a run in a thread was reported before it came: the grace was over, and the run was abandoned."""
        if not run.in_thread:
            return None
        for _, at_ms, entry in self.log:
            if (
                isinstance(entry, Report)
                and (entry.execution_id, entry.dispatch) == (run.execution, run.dispatch)
                and entry.outcome in ABANDONED
                and at_ms >= run.start_ms + CANCEL_GRACE_MS
                and (run.end_ms is None or at_ms <= run.end_ms)
            ):
                return at_ms
        return None

    def answered(self, *actions: str) -> list[Answer]:
        return [answer for answer in self.answers if answer.action in actions]

    def asked(self, *revocations: str) -> list[Answer]:
        """Answers and requests without one."""
        return [answer for answer in self.answers if answer.verb in revocations]
