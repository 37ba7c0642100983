"""Messages that the broker refuses: an oversized dispatch fails alone and permanently, an oversized report loses its
largest part."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from noonday.model.execution import State
from noonday.model.job import JobSpec
from tests.simulation.history import Effect, History
from tests.simulation.rows import Rows, StoredExecution

FILL = "x" * 5_000
"""More bytes than a message takes."""
LARGE: list[dict[str, Any]] = [
    {"fill": FILL},
    {"do": "large result"},
    {"do": "large progress"},
]
"""Payloads whose dispatch, end report or beats are larger than a message."""

ENDS = (State.DEAD, State.CANCELLED)
"""The end of an oversized execution: permanent, even if a user asked meanwhile to cancel it."""


def check_sizes(rows: Rows, history: History) -> Iterator[str]:
    """Check that an oversized execution has its promised end, and that size is never the reason for another end."""
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
    """Check a result that is too large, which fails the run permanently. Progress is dropped, and changes nothing."""
    large = [run.payload.get("do") == "large result" for run in runs]
    if execution.state is State.SUCCEEDED and large and all(large):
        yield f"size: {execution.id} is SUCCEEDED, and its result is larger than a message"
    if "ReportTooLarge" in _failures(execution):
        if not any(large):
            yield f"size: {execution.id} failed as too large to be reported, and its result is small"
        if execution.state not in ENDS:
            yield f"size: {execution.id} was too large to be reported, and is {execution.state.name}"


def _failures(execution: StoredExecution) -> set[object]:
    """The types of the failures of an execution."""
    return {
        transition.reason.get("type") for transition in execution.transitions if isinstance(transition.reason, dict)
    }
