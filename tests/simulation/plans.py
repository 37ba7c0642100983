"""Completeness: recompute the plan of every job from the answers that its users got, and compare the plan with the store.

The oracle shares no rule with the engine except the cron evaluator, which has its own tests. It folds the requests of a job
(create, replace, pause, resume, delete) into the statuses that the job may have had at each instant. A request takes effect at
some instant between the request and its answer. A request without an answer may not have taken effect at all. An occurrence
that every possible status has in its plan must have exactly one execution or decision. Some possible status must allow each
execution and each decision.
"""

import sys
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import msgspec

from noonday.model.execution import RETURN_REASONS, Cause, State
from noonday.model.ids import stable_fraction
from noonday.model.job import CatchUpPolicy, JobSpec, JobState, JobType, Overlap
from noonday.model.schedule import CronRule
from tests.simulation import moves as moving
from tests.simulation.history import Answer, History
from tests.simulation.moves import KnownMoves
from tests.simulation.rows import Rows, StoredDecision, StoredExecution, StoredJob
from tests.simulation.skips import CHANGING, KnownSkips

LEAD_MS = 250
"""An occurrence may be dispatched this many ms before its instant."""
MISFIRE_MS = 10_000
"""An occurrence that is later than this is missed, and the catch-up policy decides."""
SAME_MS = 50
"""Time in ms between an instant that a process notes and the commit that has it, without a disturbance."""
DISTURBED_MS = 60_000
"""The longest time in ms for which faults delay a commit after its decision, or the news of a commit."""


@dataclass(frozen=True)
class Definition:
    """The definition of a job from some instant on. `from_ms` and `until_ms` bound that instant."""

    job: str
    spec: JobSpec
    from_ms: int
    until_ms: int
    shown_ms: int | None = None
    """The time that the user of a one-shot without spread was shown."""

    @cached_property
    def spread_ms(self) -> int:
        share = stable_fraction(f"spread/{self.job}")
        return int(self.spec.spread_sec * 1000 * share) if self.spec.spread_sec else 0

    @cached_property
    def window(self) -> tuple[int, int]:
        """The first and the last instant a one-shot can be planned for."""
        if self.spec.type is JobType.ONE_TIME and self.spec.run_at is not None:
            at_ms = round(self.spec.run_at.timestamp() * 1000)
            return at_ms, at_ms
        if self.shown_ms is not None:
            return self.shown_ms - self.spread_ms, self.shown_ms - self.spread_ms
        delay_ms = round((self.spec.delay_sec or 0) * 1000)
        # The second of two edits in one millisecond takes effect in the next millisecond.
        return self.from_ms + delay_ms, self.until_ms + delay_ms + 5

    def has(self, at_ms: int) -> bool:
        if self.spec.one_shot:
            first, last = self.window
            return first <= at_ms <= last
        return next(self.times(at_ms, at_ms), None) is not None

    def times(self, from_ms: int, until_ms: int) -> Iterator[int]:
        """The occurrences of a recurring definition from `from_ms` to `until_ms`, both included."""
        if self.spec.start_at is not None:
            from_ms = max(from_ms, round(self.spec.start_at.timestamp() * 1000))
        if self.spec.end_at is not None:
            until_ms = min(until_ms, round(self.spec.end_at.timestamp() * 1000))
        time = self._next(from_ms - 1)
        while time is not None and time <= until_ms:
            yield time
            time = self._next(time)

    def _next(self, after_ms: int) -> int | None:
        spec = self.spec
        if spec.type is JobType.CRON:
            assert spec.schedule is not None
            return CronRule(spec.schedule, spec.timezone or "UTC", spec.dst.gap, spec.dst.repeat).next_after(after_ms)
        assert spec.every_sec is not None
        every, phase = round(spec.every_sec * 1000), round(spec.phase_sec * 1000)
        return phase + ((after_ms - phase) // every + 1) * every


class Status(NamedTuple):
    """A possible status of a job at an instant.

    `definition` is an index into the job's definitions; None: the job does not exist.
    """

    definition: int | None = None
    paused: bool = False
    deleted: bool = False


class Step(NamedTuple):
    """A request, and the bounds of the instant at which it took effect, if it did."""

    verb: str
    from_ms: int
    until_ms: int
    certain: bool
    definition: int | None = None
    changes_nothing_in: frozenset[int] = frozenset()
    """Definitions that an update by unique key leaves unchanged, because it requests the same."""

    def after(self, status: Status) -> Status:
        if self.verb == "create":
            return Status(self.definition)
        if status.definition is None or status.deleted or status.definition in self.changes_nothing_in:
            return status
        if self.verb == "replace":
            return status._replace(definition=self.definition)
        if self.verb == "delete":
            return status._replace(deleted=True)
        return status._replace(paused=self.verb == "pause")


@dataclass
class Plan:
    """The plan of one job, and the rows of the store about it."""

    job: str
    definitions: list[Definition]
    steps: list[Step]
    executions: Sequence[StoredExecution]
    decisions: Sequence[StoredDecision]
    stored: StoredJob | None
    now_ms: int
    calm: bool
    """Whether the run had no disturbance."""
    skips: KnownSkips = field(default_factory=KnownSkips)
    moves: KnownMoves = field(default_factory=KnownMoves)
    skew_ms: int = 0
    """The largest offset of the clocks in ms. The bounds of steps and definitions include it."""
    _known: dict[int, frozenset[Status]] = field(default_factory=dict)

    def problems(self) -> Iterator[str]:
        yield from self._missing()
        yield from self._besides()
        yield from self._despite_skips()
        yield from self._despite_moves()
        for decision in self.decisions:
            yield from self._allowed(decision)
        yield from self._too_many()

    @property
    def _same_ms(self) -> int:
        return SAME_MS + self.skew_ms

    # -- statuses ------------------------------------------------------------------------------------------------------

    @cached_property
    def _edges(self) -> list[int]:
        return sorted({edge for step in self.steps for edge in (step.from_ms, step.until_ms + 1)})

    def at(self, at_ms: int) -> frozenset[Status]:
        """Return the statuses that are possible at an instant."""
        place = bisect_right(self._edges, at_ms)
        if place not in self._known:
            self._known[place] = self._fold(at_ms)
        return self._known[place]

    def between(self, from_ms: int, until_ms: int) -> frozenset[Status]:
        """Return the statuses that are possible at some instant of a span."""
        inside = self._edges[bisect_left(self._edges, from_ms) : bisect_right(self._edges, until_ms)]
        return frozenset().union(*(self.at(at_ms) for at_ms in (from_ms, *inside, until_ms)))

    def _fold(self, at_ms: int) -> frozenset[Status]:
        statuses = frozenset({Status()})
        for group in _at_once([step for step in self.steps if step.from_ms <= at_ms]):
            if len(group) == 1 and group[0].certain and group[0].until_ms < at_ms:
                statuses = frozenset(group[0].after(status) for status in statuses)
                continue
            # In any order, each applied or not.
            grown: frozenset[Status] = frozenset()
            while grown != statuses:
                grown = statuses
                statuses |= {step.after(status) for step in group for status in statuses}
        return statuses

    def _of(self, status: Status) -> Definition | None:
        return None if status.definition is None or status.deleted else self.definitions[status.definition]

    # -- missing occurrences -------------------------------------------------------------------------------------------

    @cached_property
    def _fired(self) -> Counter[int]:
        return Counter(e.nominal_ms for e in self.executions if e.cause == Cause.SCHEDULE)

    @cached_property
    def _nominals(self) -> list[int]:
        return sorted(self._fired.elements())

    @cached_property
    def _is_edited(self) -> bool:
        return any(step.verb == "replace" for step in self.steps)

    def _missing(self) -> Iterator[str]:
        for number, definition in enumerate(self.definitions):
            if definition.spec.one_shot:
                yield from self._missing_one_shot(number, definition)
                continue
            last_ms = min(
                (
                    s.until_ms
                    for s in self.steps
                    if s.verb == "replace" and s.from_ms > definition.until_ms and s.certain
                ),
                default=sys.maxsize,
            )
            for time in definition.times(definition.from_ms, min(self.now_ms - self.skew_ms, last_ms)):
                yield from self._missing_time(time)
        for time in sorted(self.moves.new_times()):
            is_due = time <= self.now_ms - self.skew_ms
            if is_due and self.moves.surely_new(time, time - LEAD_MS - self._same_ms, time):
                yield from self._missing_time(time)

    def _has(self, definition: Definition, time: int, at_ms: int) -> bool:
        """Whether a definition has an occurrence at a time, or one may have been moved there by what is known at an instant."""
        return definition.has(time) or (
            not definition.spec.one_shot and self.moves.may_have_new(time, at_ms - self._same_ms, at_ms + self._same_ms)
        )

    def _missing_time(self, time: int) -> Iterator[str]:
        fired = self._fired[time]
        decided = [d for d in self.decisions if d.from_ms <= time <= d.to_ms]
        if fired > 1:
            yield f"I2: {time} of job {self.job} was fired {fired} times"
        # An edit may decide a range that has a time which was dispatched ahead of its instant.
        counted = [d for d in decided if not (self._is_edited and fired)]
        if fired + len(counted) > 1:
            yield f"I2: {time} of job {self.job} was fired {fired} times and decided by {decided}"
        if fired or decided:
            return
        statuses = self.at(time)
        if all(self._demands(status, time) for status in statuses) and not (
            self._rests_since(time) or self._used_up(time)
        ):
            yield (
                f"completeness: {time} of job {self.job} has neither an execution nor a decision; "
                f"in force: {self._words(statuses)}"
            )

    def _demands(self, status: Status, time: int) -> bool:
        definition = self._of(status)
        if definition is None or not self._has(definition, time, time - LEAD_MS):
            return False
        most = definition.spec.max_runs
        return most is None or bisect_left(self._nominals, time) < most

    def _used_up(self, time: int) -> bool:
        """Whether the time was overdue when a definition took effect whose runs were used up before its turn came."""
        return any(
            definition.from_ms + 2 * self.skew_ms > time
            and definition.spec.max_runs is not None
            and self._has(definition, time, time - LEAD_MS)
            and self._runs(number) >= definition.spec.max_runs
            for number, definition in enumerate(self.definitions)
        )

    def _runs(self, number: int) -> int:
        """The most runs that may count against the `maxRuns` of a definition: those before it, too, if they were counted."""
        since_ms = self.definitions[number].from_ms
        while number and self.definitions[number - 1].spec.max_runs is not None:
            number -= 1
            since_ms = self.definitions[number].from_ms
        return sum(e.created_ms >= since_ms for e in self.executions)

    def _rests_since(self, time: int) -> bool:
        """Return since when the job may have been paused, if it is paused at the end."""
        if self.stored is None or self.stored.state != JobState.PAUSED:
            return False
        last_ms = max((s.from_ms for s in self.steps if s.verb == "pause"), default=0)
        return any(status.paused for status in self.between(last_ms, self.now_ms)) and time >= last_ms - MISFIRE_MS

    def _missing_one_shot(self, number: int, definition: Definition) -> Iterator[str]:
        first_ms, last_ms = definition.window
        found = any(first_ms <= time <= last_ms for time in self._fired) or any(
            d.from_ms <= last_ms and d.to_ms >= first_ms for d in self.decisions
        )
        at_ms = max(last_ms, definition.until_ms) + 1
        if found or at_ms > self.now_ms or self._rests_since(at_ms):
            return
        if all(status.definition == number and not status.deleted for status in self.at(at_ms)):
            yield f"completeness: one-shot {self.job} due from {first_ms} to {last_ms} has neither an execution nor a decision"

    # -- unplanned occurrences -----------------------------------------------------------------------------------------

    def _besides(self) -> Iterator[str]:
        for execution in self.executions:
            if execution.cause != Cause.SCHEDULE:
                continue
            time, made_ms = execution.nominal_ms, execution.created_ms
            statuses = self.between(made_ms - self._same_ms, made_ms + self._same_ms)
            if not any((d := self._of(status)) and self._has(d, time, made_ms) for status in statuses):
                yield (
                    f"completeness: execution {execution.id} of {time}, made at {made_ms}, is in no plan; "
                    f"in force: {self._words(statuses)}"
                )
            elif all(status.paused for status in statuses):
                yield f"completeness: execution {execution.id} was made at {made_ms} while its job was paused"
            elif self._comes_too_early(execution):
                yield f"completeness: execution {execution.id} of {time} is of a time before its job"
            else:
                yield from self._should_be_missed(execution, statuses)

    def _despite_skips(self) -> Iterator[str]:
        """Executions and decisions of occurrences that were skipped when they were made."""
        for execution in self.executions:
            if execution.cause == Cause.SCHEDULE and self._is_skipped(execution.nominal_ms, execution.created_ms):
                yield f"skip: execution {execution.id} of {execution.nominal_ms} was made although it was skipped"
        for decision in self.decisions:
            if decision.outcome == "SKIPPED" and decision.reason.startswith("skipped by"):
                continue
            inside = {time for each in self.skips.shown for time in each.times or ()}
            hidden = [time for time in inside if decision.from_ms <= time <= decision.to_ms]
            for time in hidden:
                if self._is_skipped(time, decision.decided_ms):
                    yield f"skip: {time} was skipped, and decision {decision} does not say so"

    def _despite_moves(self) -> Iterator[str]:
        """Executions and decisions at former times of occurrences that were moved when they were made."""
        for execution in self.executions:
            if execution.cause == Cause.SCHEDULE and self._is_moved(execution.nominal_ms, execution.created_ms):
                yield f"move: execution {execution.id} was made at {execution.nominal_ms}, from which it was moved"
        for decision in self.decisions:
            if decision.outcome == "MOVED":
                continue
            for time in self.moves.times():
                if decision.from_ms <= time <= decision.to_ms and self._is_moved(time, decision.decided_ms):
                    yield f"move: {time} was moved, and decision {decision} does not say so"

    def _is_moved(self, time: int, at_ms: int) -> bool:
        return self.moves.surely_moved(time, at_ms - self._same_ms, at_ms + self._same_ms)

    def _is_skipped(self, time: int, at_ms: int) -> bool:
        return self.skips.surely(time, at_ms - self._same_ms, at_ms + self._same_ms)

    def _comes_too_early(self, execution: StoredExecution) -> bool:
        """Whether no definition was in force at the time of an occurrence."""
        one_shot = any(d.spec.one_shot and d.has(execution.nominal_ms) for d in self.definitions)
        return not one_shot and execution.nominal_ms < self.steps[0].from_ms

    def _should_be_missed(self, execution: StoredExecution, statuses: frozenset[Status]) -> Iterator[str]:
        """Whether the catch-up policy or the start deadline forbids an occurrence that was fired."""
        time, made_ms = execution.nominal_ms, execution.created_ms
        definitions = [d for status in statuses if (d := self._of(status)) and self._has(d, time, made_ms)]
        slack_ms = (1_000 if self.calm else DISTURBED_MS) + self.skew_ms
        late_ms = execution.created_ms - execution.nominal_ms - slack_ms
        if all(_is_given_up(d, late_ms - d.spread_ms) for d in definitions):
            yield (
                f"completeness: execution {execution.id} was made {execution.created_ms - execution.nominal_ms} ms late, "
                f"which {[d.spec.catch_up for d in definitions]} does not make up for"
            )

    # -- decisions -----------------------------------------------------------------------------------------------------

    def _allowed(self, decision: StoredDecision) -> Iterator[str]:
        decided_ms = decision.decided_ms
        statuses = self.between(decided_ms - self._same_ms, decided_ms + self._same_ms)
        meant = [d for status in statuses if (d := self._of(status)) and self._has(d, decision.from_ms, decided_ms)]
        why = self._flaw(decision, statuses, meant)
        if why:
            yield f"completeness: decision {decision} is not allowed: {why}; in force: {self._words(statuses)}"
        counts = {sum(1 for _ in d.times(decision.from_ms, decision.to_ms)) for d in meant if not d.spec.one_shot}
        counts |= {1 for d in meant if d.spec.one_shot}
        if any(decision.from_ms <= time <= decision.to_ms for time in self.moves.times()):
            return
        if len(self.definitions) == 1 and counts and decision.count not in counts:
            yield f"I2: decision {decision} counts {decision.count}, the plan says {sorted(counts)}"

    def _flaw(self, decision: StoredDecision, statuses: frozenset[Status], meant: Sequence[Definition]) -> str | None:
        outcome = decision.outcome
        if outcome in ("EDITED", "CANCELLED"):
            verb = "replace" if outcome == "EDITED" else "delete"
            return None if self._was_asked(verb, decision.decided_ms) else f"nobody asked to {verb} it then"
        if outcome == "PAUSED":
            if not any(status.paused for status in statuses):
                return "it was not paused"
            keeps = all(d.spec.one_shot or d.spec.catch_up.while_paused for d in meant)
            return "its definition keeps what passes while it is paused" if meant and keeps else None
        if outcome == "ERROR":
            return "nothing of it is wrong"
        if not meant:
            return "no plan has it"
        check = {"MISSED": self._missed, "EXPIRED": self._expired, "SKIPPED": self._skipped, "MOVED": self._moved}[
            outcome
        ]
        flaws = [check(decision, definition) for definition in meant]
        return None if None in flaws else flaws[0]

    def _was_asked(self, verb: str, at_ms: int) -> bool:
        return any(
            s.verb == verb and s.from_ms - self._same_ms <= at_ms <= s.until_ms + self._same_ms for s in self.steps
        )

    def _missed(self, decision: StoredDecision, definition: Definition) -> str | None:
        if definition.spec.one_shot:
            return "a one-shot is made up for"
        # The scheduler decides by its own clock; the store may date the decision by another clock.
        due_now = decision.decided_ms + self.skew_ms - definition.spread_ms
        # A range around an occurrence that is left out is divided, and its first part tells how late it was.
        first_ms = min(
            d.from_ms for d in self.decisions if (d.outcome, d.decided_ms) == ("MISSED", decision.decided_ms)
        )
        if due_now - first_ms <= MISFIRE_MS:
            return f"it was {due_now - first_ms} ms late"
        catch_up = definition.spec.catch_up
        if due_now - decision.to_ms > catch_up.window_sec * 1000:
            return None
        if catch_up.policy is CatchUpPolicy.ALL:
            return "all are to be made up for"
        if catch_up.policy is CatchUpPolicy.NONE:
            return None if due_now - decision.to_ms > MISFIRE_MS else f"{decision.to_ms} is not late"
        at_ms = decision.decided_ms
        later = [*definition.times(decision.to_ms + 1, due_now), *self._moved_to(decision.to_ms + 1, due_now, at_ms)]
        is_later = any(not self._is_skipped(time, at_ms) and not self._is_moved(time, at_ms) for time in later)
        return None if is_later else f"{decision.to_ms} is the latest"

    def _expired(self, decision: StoredDecision, definition: Definition) -> str | None:
        deadline = definition.spec.start_deadline_sec
        if deadline is None:
            return "there is no start deadline"
        late_ms = decision.decided_ms - definition.spread_ms - decision.to_ms
        # The scheduler decides by its own clock; the store may date the decision by another clock.
        return None if late_ms + self.skew_ms > deadline * 1000 else f"it was {late_ms} ms late"

    def _skipped(self, decision: StoredDecision, definition: Definition) -> str | None:
        if decision.reason.startswith("skipped by"):
            decided_ms = decision.decided_ms
            if decision.count != 1 or decision.from_ms != decision.to_ms:
                return "a skip is of one occurrence"
            is_not = self.skips.surely_not(decision.from_ms, decided_ms - self._same_ms, decided_ms + self._same_ms)
            return "nobody skipped it" if is_not else None
        if definition.spec.overlap is Overlap.ALLOW:
            return "overlap is allowed"
        slack_ms = (2_000 if self.calm else DISTURBED_MS) + self.skew_ms
        for other in self.executions:
            over_ms = sys.maxsize if other.finished_ms is None else other.finished_ms + slack_ms
            if other.created_ms <= decision.decided_ms + self._same_ms and over_ms >= decision.decided_ms:
                return None
        return "no execution was open"

    def _moved(self, decision: StoredDecision, definition: Definition) -> str | None:
        decided_ms = decision.decided_ms
        if decision.count != 1 or decision.from_ms != decision.to_ms:
            return "a move is of one occurrence"
        is_not = self.moves.surely_not_moved(decision.from_ms, decided_ms - self._same_ms, decided_ms + self._same_ms)
        return "nobody moved it" if is_not else None

    def _moved_to(self, from_ms: int, until_ms: int, at_ms: int) -> list[int]:
        """The times of a span to which occurrences may have been moved, as far as is known at an instant."""
        return [
            time
            for time in self.moves.new_times()
            if from_ms <= time <= until_ms
            and self.moves.may_have_new(time, at_ms - self._same_ms, at_ms + self._same_ms)
        ]

    # -- maxRuns -------------------------------------------------------------------------------------------------------

    def _too_many(self) -> Iterator[str]:
        """Whether the last definition has too many executions, if it is known to be the last."""
        last = len(self.definitions) - 1
        most = self.definitions[last].spec.max_runs
        if most is None or any(status.definition != last for status in self.at(self.now_ms)):
            return
        since_ms = self.definitions[last].until_ms
        runs = [
            e
            for e in self.executions
            if e.cause == Cause.SCHEDULE and e.nominal_ms > since_ms and not _was_taken_back(e)
        ]
        if len(runs) > most:
            yield f"completeness: job {self.job} has {len(runs)} executions, and maxRuns is {most}"

    def _words(self, statuses: frozenset[Status]) -> list[str]:
        return sorted(
            "nothing"
            if s.definition is None
            else f"definition {s.definition}{' paused' * s.paused}{' deleted' * s.deleted}"
            for s in statuses
        )


def check_plans(rows: Rows, history: History, now_ms: int, *, calm: bool) -> Iterator[str]:
    """Check the completeness of every job whose requests are known."""
    for plan in _plans(rows, history, now_ms, calm):
        yield from plan.problems()
    yield from _asked_for(rows, history)


def _plans(rows: Rows, history: History, now_ms: int, calm: bool) -> Iterator[Plan]:
    by_job: dict[str, list[Answer]] = defaultdict(list)
    for answer in history.asked("create", "replace", "pause", "resume", "delete"):
        if answer.target:
            by_job[answer.target].append(answer)
    of_skips: dict[str, list[Answer]] = defaultdict(list)
    for answer in history.asked(*CHANGING):
        of_skips[answer.target].append(answer)
    of_moves: dict[str, list[Answer]] = defaultdict(list)
    for answer in history.asked(*moving.CHANGING):
        of_moves[answer.target].append(answer)
    unanswered = [a for a in history.answers if a.action == "create?" and a.spec is not None]
    for job in {**dict.fromkeys(by_job), **rows.jobs}:
        stored = rows.jobs.get(job)
        made = _creation(by_job[job], stored, unanswered, history.skew_ms)
        if made is None:
            continue
        requests = [made, *sorted((a for a in by_job[job] if a.verb != "create"), key=lambda a: a.asked_ms)]
        if any(a.verb == "replace" and a.spec is None for a in requests):
            continue  # the replacing definition was not noted
        plan = _plan_of(job, requests, rows, stored, now_ms, calm, history.skew_ms)
        skips, moves = (KnownSkips.of(of_skips[job], history.skew_ms), KnownMoves.of(of_moves[job], history.skew_ms))
        yield replace(plan, skips=skips, moves=moves, _known={})


def _creation(
    answers: Sequence[Answer], stored: StoredJob | None, unanswered: Sequence[Answer], skew_ms: int
) -> Answer | None:
    """Return the request that created a job. A request without an answer is recognised by its definition."""
    made = next((a for a in answers if a.action == "create"), None)
    if made is not None and made.spec is not None:
        return made
    if stored is None:
        return None
    if made is not None:
        # The definition was not noted: the row in the store is used, if no request has replaced it.
        is_first = stored.revision == 1 and not stored.spec.one_shot
        return (
            Answer("create", stored.id, stored.created_ms, None, stored.created_ms, stored.spec) if is_first else None
        )
    for answer in unanswered:
        assert answer.spec is not None
        same_time = answer.asked_ms - skew_ms <= stored.created_ms <= answer.at_ms + skew_ms
        if same_time and _may_have_made(answer, stored):
            return Answer("create", stored.id, answer.at_ms, None, answer.asked_ms, answer.spec)
    return None


def _may_have_made(answer: Answer, stored: StoredJob) -> bool:
    """Whether an unanswered request created this job. A job with a unique key may have been updated since."""
    assert answer.spec is not None
    if answer.key is not None:
        return answer.key == (stored.tenant, stored.spec.unique_key)
    return msgspec.structs.replace(answer.spec, payload=None) == stored.spec


def note_updates_by_key(rows: Rows, history: History) -> None:
    """Note an unanswered request by unique key as an unanswered replacement of every job that had the key."""
    for answer in history.answered("create?"):
        if answer.key is not None:
            history.answers += [
                replace(answer, action="replace?", target=job.id)
                for job in rows.jobs.values()
                if (job.tenant, job.spec.unique_key) == answer.key
            ]


def _plan_of(
    job: str, requests: Sequence[Answer], rows: Rows, stored: StoredJob | None, now_ms: int, calm: bool, skew_ms: int
) -> Plan:
    definitions: list[Definition] = []
    steps = []
    for answer in requests:
        from_ms, until_ms = answer.asked_ms - skew_ms, answer.at_ms + skew_ms
        number, same = None, frozenset[int]()
        if answer.spec is not None:
            number = len(definitions)
            if answer.key is not None and answer.verb == "replace":
                same = frozenset(at for at, known in enumerate(definitions) if known.spec == answer.spec)
            definitions.append(Definition(job, answer.spec, from_ms, until_ms, _shown_ms(answer)))
        steps.append(Step(answer.verb, from_ms, until_ms, answer.is_certain, number, same))
    steps += [
        # It takes effect as of the end of the pause. `check_ends_of_pauses` checks that it was to come, and when.
        Step("resume", each.until_ms - skew_ms, each.at_ms + SAME_MS + skew_ms, certain=True)
        for each in rows.resumed.get(job, ())
        if each.until_ms is not None and each.until_ms - skew_ms <= each.at_ms + SAME_MS + skew_ms
    ]
    return Plan(
        job,
        definitions,
        steps,
        rows.executions_of.get(job, ()),
        rows.decisions.get(job, ()),
        stored,
        now_ms,
        calm,
        skew_ms=skew_ms,
    )


def _shown_ms(answer: Answer) -> int | None:
    shown = getattr(answer.shown, "next_fire_at", None)
    return None if shown is None else round(shown.timestamp() * 1000)


def _at_once(steps: Sequence[Step]) -> list[list[Step]]:
    """Requests in the order in which they were made. Requests that were under way at the same time form one group."""
    groups: list[list[Step]] = []
    for step in sorted(steps, key=lambda step: (step.from_ms, step.until_ms)):
        if groups and step.from_ms < max(other.until_ms for other in groups[-1]):
            groups[-1].append(step)
        else:
            groups.append([step])
    return groups


def _is_given_up(definition: Definition, late_ms: int) -> bool:
    """Whether an occurrence that is so late is not caught up, whatever else is due."""
    spec = definition.spec
    if spec.start_deadline_sec is not None and late_ms > spec.start_deadline_sec * 1000:
        return True
    if spec.one_shot or late_ms <= MISFIRE_MS:
        return False
    return spec.catch_up.policy is CatchUpPolicy.NONE or late_ms > spec.catch_up.window_sec * 1000


def _was_taken_back(execution: StoredExecution) -> bool:
    """Whether an edit or a pause ended it before it started."""
    return execution.state is State.CANCELLED and execution.revocation in RETURN_REASONS


def _asked_for(rows: Rows, history: History) -> Iterator[str]:
    """Check triggers, backfills and retries of dead letters: each acknowledged one has its executions, and each of these
    executions was requested."""
    for answer in history.answered("trigger", "retry"):
        execution = getattr(answer.shown, "execution_id", None)
        if execution is not None and execution not in rows.executions:
            yield f"completeness: {answer.verb} of {answer.target} was answered with {execution}, which does not exist"
    for answer in history.answered("backfill"):
        yield from _backfilled(rows, answer)
    if not any(answer.spec for answer in history.answers):
        return  # not all requests were noted
    for execution in rows.executions.values():
        if execution.cause != Cause.SCHEDULE and not any(
            _made(answer, execution, SAME_MS + history.skew_ms) for answer in history.answers
        ):
            yield f"completeness: nobody asked for execution {execution.id} ({Cause(execution.cause).name})"


def _backfilled(rows: Rows, answer: Answer) -> Iterator[str]:
    from_ms, to_ms = answer.value
    if answer.spec is None:
        return
    planned = set(Definition(answer.target, answer.spec, from_ms, to_ms).times(from_ms, to_ms))
    found = {e.nominal_ms for e in rows.executions_of.get(answer.target, ()) if e.cause == Cause.BACKFILL}
    if planned - found:
        yield f"completeness: backfill of {answer.target} was answered, and {sorted(planned - found)} have no execution"


_VERBS: Mapping[int, str] = {Cause.TRIGGER: "trigger", Cause.BACKFILL: "backfill", Cause.RETRY_OF: "retry"}


def _made(answer: Answer, execution: StoredExecution, same_ms: int) -> bool:
    """Whether a request may have made an execution."""
    if answer.verb == "operation":
        return execution.cause == Cause.RETRY_OF and answer.asked_ms - same_ms <= execution.created_ms
    if answer.verb != _VERBS[execution.cause]:
        return False
    if not answer.asked_ms - same_ms <= execution.created_ms <= answer.at_ms + same_ms:
        return False
    if execution.cause == Cause.RETRY_OF:
        return answer.target == execution.retry_of
    if execution.cause == Cause.BACKFILL:
        return answer.target == execution.job and answer.value[0] <= execution.nominal_ms <= answer.value[1]
    shown = getattr(answer.shown, "execution_id", None)
    return answer.target == execution.job and shown in (None, execution.id)
