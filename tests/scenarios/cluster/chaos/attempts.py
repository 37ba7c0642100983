"""Check that every attempt was used up for a reason: a failure that the load asked for, or a fault of its worker.

A deploy is no such reason. A worker that is stopped finishes or returns its runs, and that costs no attempt.
"""

import sqlite3
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from noonday.model.execution import OPEN, State
from tests.scenarios.cluster.history import ACKNOWLEDGED_MS, BROKER, FROZEN, KILLED, Fault

SEVERED = "cut off from kafka"
"""The server whose cut keeps a worker from reporting. No other cut may cost an attempt."""
STARTED_BEFORE_MS = 1_000
"""How long before the start of a run a fault may end and still have met it, in ms: clocks differ, and reports are batched."""
FAILURES = (State.FAILED, State.TIMED_OUT, State.FAILED_WORKER_LOST)
EXPECTED_FAILURES = (
    ("ValueError", "told to"),
    ("DoNotRetry", "told to"),
    ("Timeout", "did not end within 0.5 s"),
    ("HTTP_500", "answered 500"),
)
"""Types of the failures that users ask for, and the beginnings of their messages."""


@dataclass
class Deploy:
    """A process that was stopped with SIGTERM and replaced."""

    process: str
    stop_asked_ms: int
    ended_ms: int | None = None


def stopped_unheard(deploys: Sequence[Deploy], faults: Sequence[Fault]) -> Iterator[Fault]:
    """Faults for processes that ended while the broker was away: nobody acknowledged their last reports."""
    for deploy in deploys:
        for fault in faults:
            until_ms = (fault.until_ms or fault.at_ms) + ACKNOWLEDGED_MS
            if fault.victim == BROKER and deploy.ended_ms and fault.at_ms <= deploy.ended_ms <= until_ms:
                yield Fault("stopped while kafka was away", deploy.process, deploy.stop_asked_ms, deploy.ended_ms)


def was_hindered(deploy: Deploy, ended_ms: int, faults: Sequence[Fault], processes: Container[str]) -> bool:
    """Whether a fault met a process, or a server, between its SIGTERM and its end."""
    return any(
        (fault.victim == deploy.process or fault.victim not in processes)
        and fault.at_ms <= ended_ms
        and (fault.until_ms or fault.at_ms) + ACKNOWLEDGED_MS >= deploy.stop_asked_ms
        for fault in faults
    )


@dataclass(frozen=True)
class DispatchRecord:
    """One dispatch of an execution, as the transitions in the store show it."""

    execution: str
    number: int
    attempt: int
    outcome: str
    """The state that ended it, or the reason of its return, such as INTERRUPTED."""
    ended_ms: int
    process: str = ""
    """The worker's process; empty if no worker reported a start."""
    started_ms: int | None = None
    reason: Any = None
    """The failure, if it failed."""

    def was_under_way(self, process: str, at_ms: int) -> bool:
        return self.process == process and self.started_ms is not None and self.started_ms <= at_ms < self.ended_ms


@dataclass(frozen=True)
class Loss:
    """An attempt that ended because its worker was judged lost, with the fault that explains it."""

    record: DispatchRecord
    fault: Fault | None
    deploy: Deploy | None


def read_dispatches(copy: sqlite3.Connection) -> list[DispatchRecord]:
    """Every dispatch in a copy of the store."""
    processes = {worker: str(pid) for worker, pid in copy.execute("SELECT id, pid FROM workers")}
    rows = copy.execute("SELECT id, transitions FROM executions")
    return [
        record
        for execution, transitions in rows
        for record in _dispatches_of(execution, msgspec.json.decode(f"[{transitions}]"), processes)
    ]


def settled_by(records: Iterable[DispatchRecord]) -> dict[tuple[str, int], str]:
    """The process whose report settled each dispatch."""
    return {(record.execution, record.number): record.process for record in records if record.process}


def losses_in(records: Iterable[DispatchRecord], faults: Sequence[Fault], deploys: Sequence[Deploy]) -> Iterator[Loss]:
    """Every attempt that ended with its worker."""
    told = {deploy.process: deploy for deploy in deploys}
    for record in records:
        if record.outcome == State.FAILED_WORKER_LOST.name:
            deploy = told.get(record.process)
            yield Loss(record, _cause_of_loss(record, faults, deploy), deploy)


def check_attempts(
    records: Sequence[DispatchRecord],
    lines: Iterable[Mapping[str, Any]],
    faults: Sequence[Fault],
    deploys: Sequence[Deploy],
) -> Iterator[str]:
    """Report every attempt that was used up without a reason."""
    for loss in losses_in(records, faults, deploys):
        if loss.fault is None:
            yield _describe(loss)
    yield from _unexpected_failures(records, faults, deploys)
    yield from _miscounted(records, lines)


def under_way_at_deploys(records: Sequence[DispatchRecord], deploys: Iterable[Deploy]) -> Counter[str]:
    """Outcomes of the dispatches that ran on a worker when it was stopped."""
    return Counter(
        record.outcome
        for deploy in deploys
        for record in records
        if record.was_under_way(deploy.process, deploy.stop_asked_ms)
    )


def _dispatches_of(
    execution: str, transitions: Sequence[Sequence[Any]], processes: Mapping[str, str]
) -> Iterator[DispatchRecord]:
    """An execution is PENDING at the beginning of each dispatch, and only then."""
    starts = [place for place, (state, *_) in enumerate(transitions) if state == State.PENDING]
    attempt = 1
    for number, (begin, end) in enumerate(zip(starts, [*starts[1:], len(transitions)], strict=True), 1):
        own = [_Transition(*transition) for transition in transitions[begin:end]]
        following = _Transition(*transitions[end]) if end < len(transitions) else None
        last = next((each for each in own if each.state in FAILURES), own[-1])
        returned = following is not None and last.state in OPEN
        run = next((each for each in own if each.state == State.RUNNING), None)
        yield DispatchRecord(
            execution,
            number,
            attempt,
            outcome=str(following.reason).partition(":")[0] if returned and following else State(last.state).name,
            ended_ms=following.at_ms if returned and following else last.at_ms,
            process=processes.get(run.worker or "", "") if run else "",
            started_ms=run.at_ms if run else None,
            reason=last.reason,
        )
        attempt += last.state in FAILURES


@dataclass(frozen=True)
class _Transition:
    state: int
    at_ms: int
    worker: str | None = None
    reason: Any = None


def _cause_of_loss(record: DispatchRecord, faults: Sequence[Fault], deploy: Deploy | None) -> Fault | None:
    """Return the fault that explains a lost worker, if there is one.

    A worker is lost if it is killed, frozen, or cut off from the log. An unavailable broker is a cause only while the worker
    ends: it cannot report then, and does not wait.
    """
    since_ms = (record.started_ms or record.ended_ms) - STARTED_BEFORE_MS
    until_ms = min(record.ended_ms, deploy.ended_ms or record.ended_ms) if deploy else record.ended_ms
    for fault in faults:
        if fault.kind in (KILLED, FROZEN, SEVERED) and _met(fault, record.process, since_ms, until_ms):
            return fault
    if deploy is None:
        return None
    return next((fault for fault in faults if _met(fault, BROKER, deploy.stop_asked_ms, until_ms)), None)


def _met(fault: Fault, victim: str, since_ms: int, until_ms: int) -> bool:
    """A client takes a moment to find a broker that is back."""
    over_ms = (fault.until_ms or fault.at_ms) + ACKNOWLEDGED_MS
    return fault.victim == victim and fault.at_ms <= until_ms and over_ms >= since_ms


def _describe(loss: Loss) -> str:
    record = loss.record
    what = f"attempt {record.attempt} of {record.execution} (dispatch {record.number}, started {record.started_ms})"
    if loss.deploy is None:
        return f"I15: {what} was lost with process {record.process or '?'}, and no fault met that process"
    return (
        f"deploy: {what} was used up by a deploy: process {record.process} was stopped at "
        f"{loss.deploy.stop_asked_ms}, ended at {loss.deploy.ended_ms}, and no fault met it"
    )


def _unexpected_failures(
    records: Iterable[DispatchRecord], faults: Sequence[Fault], deploys: Sequence[Deploy]
) -> Iterator[str]:
    """A run fails as its payload says.

    Any other failure, such as an interrupted run that is reported as a failure, needs a fault.
    """
    told = {deploy.process: deploy.stop_asked_ms for deploy in deploys}
    for record in records:
        if record.outcome not in (State.FAILED.name, State.TIMED_OUT.name) or _is_expected(record.reason):
            continue
        since_ms = (record.started_ms or record.ended_ms) - STARTED_BEFORE_MS
        if any(fault.kind == FROZEN and _met(fault, record.process, since_ms, record.ended_ms) for fault in faults):
            continue
        during = " during a deploy" if told.get(record.process, record.ended_ms + 1) <= record.ended_ms else ""
        yield (
            f"attempt: {record.execution} failed attempt {record.attempt} (dispatch {record.number}) in process "
            f"{record.process}{during}, which its payload does not ask for: {record.reason}"
        )


def _is_expected(reason: Any) -> bool:
    if not isinstance(reason, Mapping):
        return False
    return any(reason["type"] == type_ and reason["message"].startswith(text) for type_, text in EXPECTED_FAILURES)


def _miscounted(records: Iterable[DispatchRecord], lines: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """The attempt that a handler receives is that of the transitions: it grows by a failure alone."""
    attempts = {(record.execution, record.number): record.attempt for record in records}
    for line in lines:
        stored = attempts.get((line["execution"], line["dispatch"]))
        told = line.get("attempt")
        if line["what"] == "start" and None not in (stored, told) and told != stored:
            yield (
                f"I5: dispatch {line['dispatch']} of {line['execution']} ran as attempt {told}; its transitions make it "
                f"attempt {stored}"
            )
