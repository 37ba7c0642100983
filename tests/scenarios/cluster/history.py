"""Check the promises of a cluster, given the effects of its handlers and the faults that it met."""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tests.scenarios.server_run import checks_of, effects_of, now_ms
from tests.simulation.checker import check_end
from tests.simulation.history import Answer, Effect, History

SKEW_MS = 100
"""The largest difference in ms between clocks of processes: each corrects its own by an answer that is slow on a busy
machine."""
ACKNOWLEDGED_MS = 2_000
"""Time in ms within which a report is acknowledged without a disturbance."""
EVERYONE, BROKER = "", "broker"
"""Victims that are no process. An unavailable broker explains nothing by itself: it delays the acknowledgement of reports."""
KILLED, FROZEN = "killed", "frozen"
Settled = Mapping[tuple[str, int], str]
"""(execution, dispatch) -> the process whose report the store settled."""


@dataclass
class Fault:
    """A fault of a process, by its id, or of a server that every process uses."""

    kind: str
    victim: str
    at_ms: int
    until_ms: int | None = None
    """When it was over, if it had a duration."""
    forgot: bool = False
    """Whether claims and acks are lost."""

    def met(self, process: str, since_ms: int, until_ms: int) -> bool:
        return (
            self.victim in (process, EVERYONE) and self.at_ms <= until_ms and (self.until_ms or self.at_ms) >= since_ms
        )


@dataclass(frozen=True)
class Duplicate:
    """A second run of one dispatch, or an overlapping run, and the fault that the first of the two met."""

    first: Effect
    second: Effect
    fault: Fault | None


def problems_in(
    copy: sqlite3.Connection,
    answers: list[Answer],
    lines: list[dict[str, Any]],
    faults: Sequence[Fault],
    since_ms: int = 0,
    settled: Settled | None = None,
) -> list[str]:
    """Check all promises. A second run needs a fault that explains it.

    Effects before `since_ms` have been checked already.
    """
    effects = [_without_skew(effect) for effect in effects_of(lines)]
    recent = [effect for effect in effects if effect.start_ms >= since_ms]
    with closing(copy):
        found = check_end(copy, History(answers, recent, checks_of(effects)), now_ms(), calm=False)
    return [problem for problem in found if not problem.startswith("I8")] + list(
        _runs_without_excuse(effects, faults, settled or {})
    )


def duplicates_in(
    effects: Sequence[Effect], faults: Sequence[Fault], settled: Settled | None = None
) -> Iterator[Duplicate]:
    """Every run after another of the same dispatch, or that began while another was under way."""
    settled = settled or {}
    deaths = {fault.victim: fault.at_ms for fault in faults if fault.kind == KILLED}
    for runs in _by_execution(effects).values():
        left_behind: dict[int, Fault] = {}  # for each repeated run of a dispatch, its reason
        for place, run in enumerate(runs):
            for before in sorted(runs[:place], key=lambda before: before.dispatch != run.dispatch):
                same = before.dispatch == run.dispatch
                if not same and _end_ms(before, deaths) <= run.start_ms:
                    continue
                fault = (
                    _excuse(before, _end_ms(before, deaths), faults)
                    or _unreported(before, run, faults, settled)
                    or _forgetting(before, run, faults)
                    or _asleep(run, faults)
                )
                if same and fault is not None:
                    left_behind[id(run)] = fault
                # A worker that runs a dispatch that was left behind does so beside the later dispatches.
                yield Duplicate(before, run, fault or left_behind.get(id(run)) or left_behind.get(id(before)))


def _without_skew(effect: Effect) -> Effect:
    effect.due_ms -= SKEW_MS
    return effect


def _was_woken_within(fault: Fault, since_ms: int, until_ms: int) -> bool:
    return fault.at_ms <= until_ms and fault.until_ms is not None and fault.until_ms >= since_ms


def _runs_without_excuse(effects: Sequence[Effect], faults: Sequence[Fault], settled: Settled) -> Iterator[str]:
    """I8: a dispatch runs a second time, or beside another, only if a fault met the first run; else tokens grow with time."""
    duplicates = list(duplicates_in(effects, faults, settled))
    for duplicate in duplicates:
        if duplicate.fault is None:
            yield (
                f"I8: {duplicate.first.execution} ran twice, and no fault explains it: {duplicate.first}, then "
                f"{duplicate.second}"
            )
    judged = {id(duplicate.second) for duplicate in duplicates}
    for execution, runs in _by_execution(effects).items():
        for before, after in pairwise(runs):
            if id(after) not in judged and after.token <= before.token:
                yield f"I8: the token of {execution} fell from {before.token} to {after.token}"


def _by_execution(effects: Sequence[Effect]) -> dict[str, list[Effect]]:
    runs: dict[str, list[Effect]] = {}
    for effect in sorted(effects, key=lambda effect: effect.start_ms):
        runs.setdefault(effect.execution, []).append(effect)
    return runs


def _end_ms(run: Effect, deaths: Mapping[str, int]) -> int:
    """A killed process ends its runs."""
    return run.end_ms or deaths.get(run.process) or now_ms()


def _excuse(run: Effect, end_ms: int, faults: Sequence[Fault]) -> Fault | None:
    """Return a fault before the end of the run could be known; preferably one of its own process."""
    until_ms = _acknowledged_ms(end_ms, faults)
    met = [fault for fault in faults if fault.met(run.process, run.start_ms - 1_000, until_ms)]
    return max(met, key=lambda fault: fault.victim != EVERYONE, default=None)


def _unreported(first: Effect, second: Effect, faults: Sequence[Fault], settled: Settled) -> Fault | None:
    """Return the kill of a process before it could report.

    The store settled the dispatch by the report of the second run. How long a report takes depends on the machine and on how
    soon a client finds a broker that is back.
    """
    if first.dispatch != second.dispatch or settled.get((first.execution, first.dispatch)) != second.process:
        return None
    if first.process == second.process:
        return None
    killed = (fault for fault in faults if fault.kind == KILLED and fault.victim == first.process)
    return next((fault for fault in killed if first.start_ms - 1_000 <= fault.at_ms <= second.start_ms), None)


def _asleep(run: Effect, faults: Sequence[Fault]) -> Fault | None:
    """Return the freeze of a process between its pre-start check and its start: it had claimed first, and began last."""
    asleep = (f for f in faults if f.kind == FROZEN and f.victim == run.process)
    return next((fault for fault in asleep if _was_woken_within(fault, run.checked_ms, run.start_ms)), None)


def _forgetting(first: Effect, second: Effect, faults: Sequence[Fault]) -> Fault | None:
    """Return the loss of Redis's memory between the two runs: the ack of the first was lost."""
    return next((f for f in faults if f.forgot and first.start_ms - 1_000 <= f.at_ms <= second.start_ms), None)


def _acknowledged_ms(end_ms: int, faults: Sequence[Fault]) -> int:
    """When the report of an ended run is acknowledged at the latest."""
    until_ms = end_ms + ACKNOWLEDGED_MS
    for fault in sorted(faults, key=lambda fault: fault.at_ms):
        if fault.victim == BROKER and fault.at_ms <= until_ms and (back_ms := fault.until_ms or fault.at_ms) >= end_ms:
            until_ms = max(until_ms, back_ms + ACKNOWLEDGED_MS)
    return until_ms
