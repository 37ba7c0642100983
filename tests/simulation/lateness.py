"""Bounded lateness: no start, end or settlement is late without a fault, limit, pause, key or backlog that explains it.

The wait of a dispatch begins when it could have started: at its due time, when its job was created, edited or resumed, when
the former occurrence of its job was fired, or when its retry, snooze or return was due. The part of the wait that has a reason
is subtracted; the rest must be within `LATE_MS`. Each reason has an end: a fault explains a wait only as long as the mechanism
takes that recovers from it.
"""

import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from noonday.model.execution import Cause, State, hand_back_wait_ms
from noonday.model.ids import stable_fraction
from noonday.model.job import JobSpec, Overlap
from noonday.model.rate import Rate
from noonday.model.retry import Backoff, RetryPolicy
from tests.simulation.history import CANCEL_GRACE_MS, Effect, History, Span
from tests.simulation.kernel import FaultKind, World
from tests.simulation.observing import Seen
from tests.simulation.pauses import spans_of_pauses
from tests.simulation.rows import Rows, StoredExecution

LATE_MS = 1_000
"""The largest lateness in ms of a start, an end or a settlement without a reason."""


@dataclass
class Scene:
    """The data about a run that explains why a dispatch waited."""

    rows: Rows
    history: History
    seen: Mapping[str, Sequence[Seen]]
    faults: Sequence[Span]
    """Faults with the time in ms that the recovery from them takes."""
    in_flight: Callable[[StoredExecution, int], Iterable[Span]]
    """Faults of a process that had taken a dispatch of an execution."""
    slots: int
    """The number of handlers that a process runs at the same time."""
    policy: RetryPolicy
    now_ms: int
    freed_ms: int = 300
    """Time in ms until waiting executions learn of a free slot."""
    skew_ms: int = 0
    """The largest offset of the clocks in ms: so much later everything may be."""
    retries_may_wait: bool = False
    """Whether a breaker may delay retries."""

    def problems(self) -> Iterator[str]:
        yield from self._over_caps()
        starts = {(e.execution, e.dispatch): e for e in reversed(self.history.effects)}
        for (name, dispatch), effect in starts.items():
            execution = self.rows.executions.get(name)
            if execution is not None:
                yield from self._late_start(execution, dispatch, effect)
        for execution in self.rows.executions.values():
            yield from self._late_recovery(execution, starts.keys())
        for effect in self.history.effects:
            execution = self.rows.executions.get(effect.execution)
            if execution is not None:
                yield from self._late_end(execution, effect)
                yield from self._late_settlement(execution, effect)

    def _over_caps(self) -> Iterator[str]:
        """I13: the number of dispatched executions of a tenant never exceeds its largest cap, since it has one."""
        caps: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for answer in self.history.answered("cap"):
            tenant, most = answer.value
            caps[tenant].append((answer.at_ms, most))
        for tenant, known in caps.items():
            most, since_ms = max(most for _, most in known), min(at_ms for at_ms, _ in known)
            spans = [
                span
                for execution in self.rows.executions.values()
                if execution.tenant == tenant
                for span in self._dispatched(execution)
                if span[0] > since_ms
            ]
            for _, from_ms, until_ms in _full("cap", spans, most + 1):
                yield f"I13: more than {most} executions of {tenant!r} were dispatched from {from_ms} to {until_ms}"

    def _dispatched(self, execution: StoredExecution) -> Iterator[tuple[int, int]]:
        """The spans in which an execution was dispatched and open."""
        since = None
        for note in self.seen.get(execution.id, ()):
            is_out = note.fired and note.state < State.FAILED
            if is_out and since is None:
                since = note.at_ms
            elif not is_out and since is not None:
                yield since, note.at_ms
                since = None
        if since is not None:
            yield since, self.now_ms

    # -- starts --------------------------------------------------------------------------------------------------------

    def _late_start(self, execution: StoredExecution, dispatch: int, effect: Effect) -> Iterator[str]:
        ready = self._ready_ms(execution, dispatch)
        if ready is None or effect.start_ms - ready <= LATE_MS:
            return
        reasons = [
            *self.faults,
            *self.in_flight(execution, dispatch),
            *self._limits(execution),
            *self._busy(effect.process),
        ]
        unexplained = uncovered(ready, effect.start_ms, reasons)
        if unexplained > LATE_MS + self.skew_ms:
            yield (
                f"lateness: dispatch {dispatch} of {execution.id} (job {execution.job}) was ready at {ready} and started at "
                f"{effect.start_ms}; {unexplained} ms of {effect.start_ms - ready} ms have no reason"
            )

    def _ready_ms(self, execution: StoredExecution, dispatch: int) -> int | None:
        """Return when a dispatch could have started, or None if that is unknown."""
        notes = self.seen.get(execution.id, ())
        placed = next((note for note in notes if note.dispatch == dispatch and not note.buffered), None)
        if placed is None:
            return None
        if dispatch == 1:
            waited = any(note.buffered for note in notes)
            first = placed.at_ms if waited or execution.cause != Cause.SCHEDULE else self._plan_ms(execution)
            return max(first, execution.due_ms, self._asked_ms(execution, placed.at_ms))
        wait = self._wait_ms(execution, dispatch)
        return None if wait is None else max(placed.at_ms + wait, self._asked_ms(execution, sys.maxsize))

    def _plan_ms(self, execution: StoredExecution) -> int:
        """Return when the former occurrence of the job was fired or decided: a job fires in the order of its times."""
        former = [
            self.seen[other.id][0].at_ms
            for other in self.rows.executions_of[execution.job]
            if other.nominal_ms < execution.nominal_ms and other.cause == Cause.SCHEDULE and other.id in self.seen
        ]
        decided = [d.decided_ms for d in self.rows.decisions.get(execution.job, ()) if d.to_ms < execution.nominal_ms]
        return max([0, *former, *decided])

    def _asked_ms(self, execution: StoredExecution, until_ms: int) -> int:
        """Return the time of the last request about the job that may have delayed it."""
        answers = self._answers.get(execution.job, ())
        return max((a.at_ms for a in answers if a.asked_ms <= until_ms and a.verb != "delete"), default=0)

    @cached_property
    def _answers(self) -> Mapping[str, list]:  # type: ignore[type-arg]
        found = defaultdict(list)
        for answer in self.history.asked("create", "replace", "resume"):
            found[answer.target].append(answer)
        return found

    def _wait_ms(self, execution: StoredExecution, dispatch: int) -> int | None:
        """Return how long a dispatch waits after the one before it came back."""
        places = [at for at, transition in enumerate(execution.transitions) if transition.state is State.PENDING]
        if len(places) < dispatch:
            return None
        at = places[dispatch - 1]
        before, returned = execution.transitions[at - 1].state, execution.transitions[at]
        if before in (State.FAILED, State.TIMED_OUT, State.FAILED_WORKER_LOST):
            if self.retries_may_wait:
                return None
            failures = sum(
                m.state in (State.FAILED, State.TIMED_OUT, State.FAILED_WORKER_LOST) for m in execution.transitions[:at]
            )
            return retry_wait_ms(self._policy_of(execution), failures, execution.id)
        reason = str(returned.reason or "")
        if reason.startswith("SNOOZED"):
            return 1_500 if before is State.RUNNING else None
        if not reason.startswith("HANDED_BACK"):
            return 0
        return hand_back_wait_ms(sum(transition.state is State.PENDING for transition in execution.transitions[1:at]))

    def _policy_of(self, execution: StoredExecution) -> RetryPolicy:
        return self.policy

    def _late_recovery(self, execution: StoredExecution, started: Collection[tuple[str, int]]) -> Iterator[str]:
        """A dispatch that orphan recovery returned was out of reach all the time: otherwise another mechanism had to start
        it."""
        dispatch = 0
        for transition in execution.transitions:
            if transition.state is not State.PENDING:
                continue
            dispatch += 1
            if dispatch == 1 or not str(transition.reason or "").startswith("ORPHANED"):
                continue
            orphan, notes = dispatch - 1, self.seen.get(execution.id, ())
            fired = next((note.at_ms for note in notes if note.dispatch == orphan and note.fired), None)
            found = next((note.at_ms for note in notes if note.dispatch > orphan), None)
            if fired is None or found is None or (execution.id, orphan) in started:
                continue
            busy = [span for spans in self._busy_spans.values() for span in spans]
            reasons = [*self.faults, *self.in_flight(execution, orphan), *self._limits(execution), *busy]
            unexplained = uncovered(max(fired, execution.due_ms), found, reasons)
            if unexplained > LATE_MS:
                yield (
                    f"lateness: dispatch {orphan} of {execution.id} was fired at {fired}, never started, and was recovered at "
                    f"{found}; {unexplained} ms have no reason"
                )

    # -- ends and settlements ------------------------------------------------------------------------------------------

    def _late_end(self, execution: StoredExecution, effect: Effect) -> Iterator[str]:
        """A run ends within its timeout and the grace of a cancellation. Handlers here obey a cancellation at once."""
        limits = [spec.timeout_sec for spec in self._specs(execution) if spec.timeout_sec is not None]
        if not limits or len(limits) < len(self._specs(execution)):
            return
        over_ms = effect.start_ms + round(max(limits) * 1000)
        end_ms = self.now_ms if effect.end_ms is None else effect.end_ms
        if effect.end_ms is None and self._died(effect.process):
            return
        if effect.in_thread:
            # A thread ends at any time. By the end of the grace it is abandoned, and the store knows it.
            over_ms += CANCEL_GRACE_MS
            end_ms = min(end_ms, self._settled_ms(execution, effect))
        unexplained = uncovered(over_ms, end_ms, self.faults)
        if unexplained > LATE_MS + self.skew_ms:
            yield f"lateness: {effect} ran {unexplained} ms longer than its timeout of {max(limits)} s"

    def _late_settlement(self, execution: StoredExecution, effect: Effect) -> Iterator[str]:
        """An ended run is settled: the store knows its end, or has dispatched the execution again before."""
        if effect.end_ms is None:
            return
        settled = self._settled_ms(execution, effect)
        if settled - effect.end_ms <= LATE_MS:
            return
        faults = [*self.faults, *self.in_flight(execution, effect.dispatch)]
        unexplained = uncovered(effect.end_ms, settled, faults)
        if unexplained > LATE_MS + self.skew_ms:
            yield f"lateness: {effect} was settled at {settled}; {unexplained} ms have no reason"

    def _settled_ms(self, execution: StoredExecution, effect: Effect) -> int:
        """Return when the store knew the end of a run, or had given its dispatch up."""
        notes = self.seen.get(execution.id, ())
        return next((n.at_ms for n in notes if n.dispatch > effect.dispatch or n.state >= State.FAILED), self.now_ms)

    def _died(self, process: str) -> bool:
        return any(name == process for name, _ in self.history.deaths)

    # -- reasons -------------------------------------------------------------------------------------------------------

    def _specs(self, execution: StoredExecution) -> Sequence[JobSpec]:
        """All definitions that the job ever had."""
        return self._definitions.get(execution.job) or [self.rows.jobs[execution.job].spec]

    @cached_property
    def _definitions(self) -> Mapping[str, list[JobSpec]]:
        found = defaultdict(list)
        for answer in self.history.asked("create", "replace"):
            if answer.spec is not None:
                found[answer.target].append(answer.spec)
        return found

    def _limits(self, execution: StoredExecution) -> Iterator[Span]:
        yield from self._pauses.get(execution.job, ())
        for spec in self._specs(execution):
            if spec.concurrency is not None:
                yield from self._keys.get((execution.tenant, spec.concurrency.key, spec.concurrency.ordered), ())
            if spec.overlap is not Overlap.ALLOW:
                yield from self._others(execution)
        yield from self._caps.get(execution.tenant, ())
        yield from self._rates.get(execution.tenant, ())

    @cached_property
    def _pauses(self) -> Mapping[str, list[Span]]:
        return spans_of_pauses(self.history.answers, self.now_ms)

    def _others(self, execution: StoredExecution) -> Iterator[Span]:
        for other in self.rows.executions_of[execution.job]:
            if other.id != execution.id:
                yield Span("overlap", *self._open_span(other, from_due=False))

    @cached_property
    def _keys(self) -> Mapping[tuple[str, str, bool], list[Span]]:
        """The spans in which the slots of a key are taken: all of them, or, for an ordering key, while an earlier execution
        is open."""
        holders: dict[tuple[str, str, bool], dict[str, tuple[int, int]]] = defaultdict(dict)
        limits: dict[tuple[str, str, bool], int] = {}
        for execution in self.rows.executions.values():
            for spec in self._specs(execution):
                if (key := spec.concurrency) is not None:
                    name = (execution.tenant, key.key, key.ordered)
                    limits[name] = key.limit
                    holders[name][execution.id] = self._open_span(execution, from_due=key.ordered)
        return {name: _full("key", spans.values(), limits[name]) for name, spans in holders.items()}

    @cached_property
    def _caps(self) -> Mapping[str, list[Span]]:
        found: dict[str, list[Span]] = {}
        for answer in self.history.asked("cap"):
            tenant, most = answer.value
            spans = [self._open_span(e, from_due=False) for e in self.rows.executions.values() if e.tenant == tenant]
            found.setdefault(tenant, []).extend(_full("cap", spans, most))
        return found

    @cached_property
    def _rates(self) -> Mapping[str, list[Span]]:
        """The spans in which a tenant with a rate had no token: after each of its dispatches, and after a fault that lost a
        burst of tokens."""
        found: dict[str, list[Span]] = defaultdict(list)
        for answer in self.history.asked("rate"):
            tenant, rate = answer.value
            found[tenant] += self._spent(tenant, rate, answer.asked_ms)
            lost_ms = round(rate.burst * rate.interval_ms)
            found[tenant] += [Span("rate", span.from_ms, span.until_ms + lost_ms) for span in self.faults]
        return found

    def _spent(self, tenant: str, rate: Rate, since_ms: int) -> Iterator[Span]:
        spent_until = float(since_ms)
        for at_ms in sorted(at_ms for at_ms in self._dispatch_times(tenant) if at_ms >= since_ms):
            spent_until = max(spent_until, at_ms) + rate.interval_ms
            one_token_ms = round(spent_until - (rate.burst - 1) * rate.interval_ms)
            if one_token_ms > at_ms:
                yield Span("rate", at_ms, one_token_ms + self.freed_ms)

    def _dispatch_times(self, tenant: str) -> Iterator[int]:
        """The times at which dispatches of a tenant were fired."""
        for execution in self.rows.executions.values():
            if execution.tenant == tenant:
                fired: dict[int, int] = {}
                for note in self.seen.get(execution.id, ()):
                    if note.fired:
                        fired.setdefault(note.dispatch, note.at_ms)
                yield from fired.values()

    def _busy(self, process: str) -> list[Span]:
        return self._busy_spans.get(process, [])

    @cached_property
    def _busy_spans(self) -> Mapping[str, list[Span]]:
        """The spans in which all slots of a process were taken."""
        runs: dict[str, list[tuple[int, int]]] = defaultdict(list)
        died = dict(self.history.deaths)
        for effect in self.history.effects:
            over = effect.end_ms if effect.end_ms is not None else died.get(effect.process, self.now_ms)
            over = self.history.abandoned_ms(effect) or over
            runs[effect.process].append((effect.start_ms, over + self.freed_ms))
        return {process: _full("busy", spans, self.slots) for process, spans in runs.items()}

    def _open_span(self, execution: StoredExecution, *, from_due: bool) -> tuple[int, int]:
        """The span from the first dispatch or the due time of an execution to the commit that closed it."""
        notes = self.seen.get(execution.id, ())
        first = next((note.at_ms for note in notes if note.fired or note.buffered), sys.maxsize)
        closed = next((note.at_ms for note in notes if note.state >= State.FAILED), self.now_ms)
        return min(first, execution.due_ms) if from_due else first, closed + self.freed_ms


def retry_wait_ms(policy: RetryPolicy, failures: int, execution: str) -> int:
    """Return the wait after a number of failures: the bound of the policy, times a fraction that the execution and the
    attempt decide."""
    if policy.backoff is Backoff.LIST:
        bound = policy.delays_ms[min(failures, len(policy.delays_ms)) - 1]
    elif policy.backoff is Backoff.FIXED:
        bound = policy.initial_delay_ms
    else:
        bound = int(min(policy.initial_delay_ms * policy.multiplier ** (failures - 1), policy.max_delay_ms))
    return int(bound * stable_fraction(f"{execution}/{failures}"))


def faults_of(history: History, world: World, recovery_ms: Callable[[str], int]) -> list[Span]:
    """All faults of processes and servers, with the time in ms that the recovery takes."""
    spans = spans_of(history, world)
    return [Span(span.why, span.from_ms, span.until_ms + recovery_ms(span.why)) for span in spans]


def spans_of(history: History, world: World) -> list[Span]:
    """Deaths until the next start, freezes until the next wake, cuts, flushes, and the reasons that the run has noted
    itself."""
    found = list(history.spans)
    now_ms = world.now_ms()
    ups: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for process, at_ms in history.boots:
        ups[process.split("#")[0]].append((process, at_ms))
    for at, fault in enumerate(world.fault_log):
        name = fault.process.split("#")[0]
        if fault.kind is FaultKind.KILL:
            # Not its own start, which may be in the same millisecond.
            later_ups = (up for process, up in ups[name] if up >= fault.now_ms and process != fault.process)
            up = next(later_ups, now_ms)
            found.append(Span(f"down {fault.process}", fault.now_ms, up))
        elif fault.kind is FaultKind.FREEZE:
            later = (
                f.now_ms
                for f in world.fault_log[at:]
                if f.process == fault.process and f.kind in (FaultKind.WAKE, FaultKind.KILL)
            )
            found.append(Span(f"frozen {fault.process}", fault.now_ms, next(later, now_ms)))
    found += [Span(f"cut {who} {server}", from_ms, until_ms) for who, server, from_ms, until_ms in history.cuts]
    found += [Span("flush", at_ms, at_ms) for at_ms in history.flushes]
    found += [Span("flush", copy.at_ms, copy.found_ms or copy.at_ms) for copy in history.old_copies]
    return found


def _full(why: str, spans: Collection[tuple[int, int]], most: int) -> list[Span]:
    """The spans in which at least `most` of the given spans overlap."""
    real = [(from_ms, until_ms) for from_ms, until_ms in spans if until_ms > from_ms]
    edges = sorted([*((from_ms, 1) for from_ms, _ in real), *((until_ms, -1) for _, until_ms in real)])
    found, count, since = [], 0, 0
    for at_ms, change in edges:
        was, count = count, count + change
        if was < most <= count:
            since = at_ms
        elif count < most <= was:
            found.append(Span(why, since, at_ms))
    return found


def uncovered(from_ms: int, until_ms: int, reasons: Iterable[Span]) -> int:
    """Return the part of a span in ms that no reason covers."""
    left, at = 0, from_ms
    for span in sorted(reasons, key=lambda span: span.from_ms):
        if span.until_ms <= at:
            continue
        if span.from_ms >= until_ms:
            break
        left += max(0, span.from_ms - at)
        at = max(at, span.until_ms)
    return left + max(0, until_ms - at)
