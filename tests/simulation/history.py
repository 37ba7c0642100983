"""The history of a run, as the checker needs it: answers to users, effects of handlers, pre-start checks, deaths."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from noonday.model.execution import Outcome
from noonday.model.job import JobSpec
from noonday.model.message import LogEntry, Report

CANCEL_GRACE_MS = 5_000
"""Time in ms for which a run may go on after it was asked to end. Then it is abandoned."""
ABANDONED = (Outcome.TIMED_OUT, Outcome.CANCELLED, Outcome.INTERRUPTED)
"""Outcomes that are reported for a run that ignores its end."""


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
    """When the pre-start check was requested, or earlier. A revocation that was acknowledged before this time must win."""
    in_thread: bool = False
    """Whether the run is in a thread, which cannot be cancelled: it goes on, and is abandoned after the grace."""


@dataclass(frozen=True)
class Answer:
    """An answered request. If the action ends with `?`, there was no answer, and the request may have taken effect or not."""

    action: str
    target: str
    at_ms: int
    value: Any = None
    asked_ms: int = 0
    spec: JobSpec | None = None
    """The definition in the request."""
    shown: Any = None
    """The answer that the user saw."""
    key: tuple[str, str] | None = None
    """(tenant, unique key), if the request created or updated a job by its key."""

    @property
    def verb(self) -> str:
        """The action without its `?`."""
        return self.action.rstrip("?")

    @property
    def is_certain(self) -> bool:
        return not self.action.endswith("?")


class Span(NamedTuple):
    """A reason to wait, and how long it lasts."""

    why: str
    from_ms: int
    until_ms: int


class Passed(NamedTuple):
    """A message of a pool below a committed offset: it is not delivered again."""

    at_ms: int
    execution: str
    dispatch: int
    fired_ms: int


class Enqueued(NamedTuple):
    """A job that a handler enqueued. It exists only if the dispatch succeeded or snoozed."""

    execution: str
    dispatch: int
    job: str
    is_named: bool


class Logged(NamedTuple):
    """An entry of the log, and when it was written."""

    partition: int
    at_ms: int
    entry: LogEntry


@dataclass
class OldCopy:
    """Redis became an older copy of itself. It lacks the writes of the seconds between."""

    copied_ms: int
    at_ms: int
    found_ms: int | None = None
    """When a recorder recognised the older copy, and ended its generation."""


@dataclass
class History:
    answers: list[Answer] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    checks: dict[tuple[str, int], int] = field(default_factory=dict)
    """(execution, dispatch) -> when the last pre-start check before its start was answered."""
    deaths: list[tuple[str, int]] = field(default_factory=list)
    """(process, when it was killed)."""
    cuts: list[tuple[str, str, int, int]] = field(default_factory=list)
    """(process, server, from, until): cut connections."""
    acks: dict[tuple[str, int, str], int] = field(default_factory=dict)
    """(execution, dispatch, process) -> when the first report of it was acknowledged to its worker."""
    flushes: list[int] = field(default_factory=list)
    """When Redis lost its memory."""
    old_copies: list[OldCopy] = field(default_factory=list)
    """When Redis was replaced by an older copy of itself."""
    boots: list[tuple[str, int]] = field(default_factory=list)
    """(process, when it was up)."""
    spans: list[Span] = field(default_factory=list)
    """Other reasons to wait, with their times."""
    taken: dict[tuple[str, int], dict[str, int]] = field(default_factory=dict)
    """(execution, dispatch) -> processes that had taken it, and since when."""
    passed: list[Passed] = field(default_factory=list)
    """Messages below a committed offset."""
    enqueued: list[Enqueued] = field(default_factory=list)
    """Jobs that handlers enqueued."""
    log: list[Logged] = field(default_factory=list)
    """Entries that workers and recorders wrote to the log."""
    log_ends: dict[int, int] = field(default_factory=dict)
    """Partition -> when its log entries were lost."""
    clock_errors: list[tuple[str, int, int]] = field(default_factory=list)
    """(process, since when, by how much its clock was ahead of the reference clock)."""
    excuses: list[str] = field(default_factory=list)
    """Second runs that a fault explains: the process or server, and the time."""
    problems: list[str] = field(default_factory=list)
    """Problems that were seen during the run."""

    @property
    def skew_ms(self) -> int:
        """The largest offset of any clock."""
        return max((abs(error_ms) for _, _, error_ms in self.clock_errors), default=0)

    def ahead_ms(self, process: str, at_ms: int) -> int:
        """Return by how many ms the clock of a process was ahead in the second before an instant: so much too early it may
        start a run."""
        errors = [(since_ms, error_ms) for name, since_ms, error_ms in self.clock_errors if name == process]
        untils = [*(since_ms for since_ms, _ in errors[1:]), at_ms] if errors else []
        recent = [
            error_ms
            for (since_ms, error_ms), until_ms in zip(errors, untils, strict=True)
            if since_ms <= at_ms and until_ms >= at_ms - 1_000
        ]
        return max((0, *recent))

    def abandoned_ms(self, run: Effect) -> int | None:
        """Return when the end of a run in a thread was reported before it came: the grace was over, and the run was
        abandoned."""
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
        """Requests with and without an answer."""
        return [answer for answer in self.answers if answer.verb in revocations]
