"""Messages that the broker refuses: a large dispatch fails alone and for good, a large report loses what is too large."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from noonday.model.execution import State
from noonday.model.job import JobSpec
from tests.simulation.history import Effect, History
from tests.simulation.rows import Rows, StoredExecution

FILL = "x" * 5_000
"""More than a message takes."""
LARGE: list[dict[str, Any]] = [
    {"fill": FILL},
    {"do": "large result"},
    {"do": "large progress"},
]
"""Payloads whose dispatch, end report or beats are larger than a message."""

ENDS = (State.DEAD, State.CANCELLED)
"""How an execution ends that is too large: for good, also if somebody asked meanwhile to cancel it."""


def check_sizes(rows: Rows, history: History) -> Iterator[str]:
    """What is too large has the end that the engine promises, and is never the reason for another end."""
    runs: dict[str, list[Effect]] = defaultdict(list)
    for effect in history.effects:
        runs[effect.execution].append(effect)
    specs: dict[str, list[JobSpec]] = defaultdict(list)
    for answer in history.asked("create", "replace"):
        if answer.spec is not None:
            specs[answer.target].append(answer.spec)
    for execution in rows.executions.values():
        refused = "DispatchTooLarge" in _failures(execution)
        for effect in runs[execution.id]:
            if "fill" in effect.payload:
                yield f"size: {execution.id} ran, and its dispatch is larger than a message"
        if refused and not any("fill" in spec.payload for spec in specs.get(execution.job, ())):
            yield f"size: {execution.id} failed as too large to be dispatched, and is small"
        if refused and execution.state not in ENDS:
            yield f"size: {execution.id} was too large to be dispatched, and is {execution.state.name}"
        yield from _reported(execution, runs[execution.id])


def _reported(execution: StoredExecution, runs: list[Effect]) -> Iterator[str]:
    """A result that is too large fails the run for good. Progress is dropped, and changes nothing."""
    large = [run.payload.get("do") == "large result" for run in runs]
    if execution.state is State.SUCCEEDED and large and all(large):
        yield f"size: {execution.id} is SUCCEEDED, and its result is larger than a message"
    if "ReportTooLarge" in _failures(execution):
        if not any(large):
            yield f"size: {execution.id} failed as too large to be reported, and its result is small"
        if execution.state not in ENDS:
            yield f"size: {execution.id} was too large to be reported, and is {execution.state.name}"


def _failures(execution: StoredExecution) -> set[object]:
    """The types of its failures."""
    return {
        transition.reason.get("type") for transition in execution.transitions if isinstance(transition.reason, dict)
    }
