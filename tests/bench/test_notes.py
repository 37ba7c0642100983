"""The notes of handlers reach the process that compares them."""

import asyncio
import time
from pathlib import Path
from typing import Any, cast

from bench.notes import Notes, read_notes

from noonday.worker.context import Context


class Called:
    """The part of a context that the handlers use."""

    def __init__(self, execution_id: str) -> None:
        self.execution_id = execution_id


async def test_every_call_is_written_down_in_order(tmp_path: Path) -> None:
    notes, before = Notes(), time.time_ns()
    for execution in ("a", "b", "a"):
        await notes.note(context(execution))
    notes.write(tmp_path / "notes")
    seen = read_notes(tmp_path / "notes")
    assert [execution for execution, _ in seen.starts()] == ["a", "b", "a"]
    assert before <= seen.at_ns[0] <= seen.at_ns[1] <= seen.at_ns[2] <= time.time_ns()
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]


async def test_handlers_that_wait_at_the_same_time_are_counted() -> None:
    notes = Notes()
    await asyncio.gather(*(notes.wait(context(str(each)), 0.001) for each in range(3)))
    await notes.wait(context("alone"), 0)
    assert notes.seen().at_once == 3
    assert len(notes) == 4


def context(execution: str) -> Context:
    return cast(Context, cast(Any, Called(execution)))
