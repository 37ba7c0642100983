"""Whether a cluster kept its promises, given what its handlers did and which faults it met."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from tests.scenarios.life import LOOK_MS, effects_of, now_ms
from tests.simulation.checker import check_end
from tests.simulation.history import Answer, Effect, History

SKEW_MS = 100
"""What the clocks of processes may differ by: each corrects its own by an answer that takes time on a busy machine."""
EVERYONE = ""


@dataclass(frozen=True)
class Fault:
    """What a scenario did to a process, by its id, or to something that everyone uses."""

    kind: str
    victim: str
    at_ms: int


def problems_in(
    copy: sqlite3.Connection,
    answers: list[Answer],
    lines: list[dict[str, Any]],
    faults: Sequence[Fault],
    since_ms: int = 0,
) -> list[str]:
    """The checker's word on all promises but one: that a second run needs a fault which explains it, is judged here.

    What was done before `since_ms` has been checked already.
    """
    effects = [_without_skew(effect) for effect in effects_of(lines)]
    looks = {(effect.execution, effect.dispatch): effect.start_ms - LOOK_MS for effect in effects}
    recent = [effect for effect in effects if effect.start_ms >= since_ms]
    with closing(copy):
        found = check_end(copy, History(answers, recent, looks), now_ms())
    return [problem for problem in found if not problem.startswith("I8")] + list(_runs_without_excuse(effects, faults))


def _without_skew(effect: Effect) -> Effect:
    effect.due_ms -= SKEW_MS
    return effect


def _runs_without_excuse(effects: Sequence[Effect], faults: Sequence[Fault]) -> Iterator[str]:
    """I8: a second run of a dispatch, or one beside another, only if a fault met the first one; else tokens grow with time."""
    runs: dict[str, list[Effect]] = {}
    for effect in sorted(effects, key=lambda effect: effect.start_ms):
        runs.setdefault(effect.execution, []).append(effect)
    for execution, of_one in runs.items():
        for place, run in enumerate(of_one[1:], 1):
            rivals = [before for before in of_one[:place] if before.dispatch == run.dispatch or _overlap(before, run)]
            if not all(_excuse(rival, faults) for rival in rivals):
                yield f"I8: {execution} ran twice, and no fault explains it: {rivals}, then {run}"
            if not rivals and run.token <= of_one[place - 1].token:
                yield f"I8: the token of {execution} fell from {of_one[place - 1].token} to {run.token}"


def _overlap(before: Effect, after: Effect) -> bool:
    return before.end_ms is None or before.end_ms > after.start_ms


def _excuse(run: Effect, faults: Sequence[Fault]) -> bool:
    """Met before it could be known to have ended."""
    until = (run.end_ms or now_ms()) + 2_000
    return any(
        fault.victim in (run.process, EVERYONE) and run.start_ms - 1_000 <= fault.at_ms <= until for fault in faults
    )
