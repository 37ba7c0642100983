"""A real process on a real file, killed with -9 at random points, and checked by the checker of the simulation."""

import os
from contextlib import closing
from pathlib import Path
from random import SystemRandom
from typing import Any

import pytest

from noonday.drivers.sqlite.connection import MEMORY, FileOptions, connect
from noonday.drivers.sqlite.store import prepare
from tests.scenarios.process import served, until
from tests.scenarios.server_run import ServerRun, effects_of
from tests.simulation.checker import check_end
from tests.simulation.history import History

SEED = int(os.environ.get("NOONDAY_KILL_SEED") or SystemRandom().randrange(10**9))
KILLS = int(os.environ.get("NOONDAY_KILLS") or 25)


@pytest.mark.slow
async def test_no_promise_is_broken_by_a_process_that_is_killed_repeatedly(tmp_path: Path) -> None:
    run = ServerRun(tmp_path, SEED)

    problems = await run.play(KILLS)

    assert not problems, f"to ask and kill like this again: NOONDAY_KILL_SEED={SEED}; kept in {tmp_path}\n{problems}"
    assert len(run.server.lines("start")) > KILLS


@pytest.mark.slow
async def test_a_handler_in_a_process_does_not_outlive_its_killed_parent(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        job = await server.create("mule", {"sec": 0.5}, pool="processes")
        first = (await until(lambda: server.lines("alive", job)))[0]

        server.kill()
        await until(lambda: not _is_alive(first["pid"]))
        await server.up()
        await server.execution(job, state="SUCCEEDED")

    runs = server.lines("start", job)
    assert [run["dispatch"] for run in runs] == [1, 2]
    assert (
        max(line["at_ms"] for line in server.lines("alive", job) if line["pid"] == first["pid"]) < runs[1]["start_ms"]
    )


def test_checker_reports_broken_promises_of_a_log() -> None:
    twice = [_start(dispatch=1, at_ms=10), _end(dispatch=1, at_ms=11), _start(dispatch=1, at_ms=12)]
    early = [_start(dispatch=1, at_ms=9)]
    together = [_start(dispatch=1, at_ms=10), _start(dispatch=2, at_ms=20), _end(dispatch=1, at_ms=30)]

    assert any("dispatch 1 of execution x ran 2 times" in problem for problem in _problems_in(twice))
    assert any("started 1 ms early" in problem for problem in _problems_in(early))
    assert any("overlap" in problem for problem in _problems_in(together))
    assert any("I18" in problem for problem in _problems_in(early))


def _problems_in(lines: list[dict[str, Any]]) -> list[str]:
    with closing(connect(MEMORY, FileOptions("OFF"))) as conn:
        prepare(conn)
        return check_end(conn, History(effects=effects_of(lines)), now_ms=100, calm=True)


def _start(*, dispatch: int, at_ms: int) -> dict[str, Any]:
    line = {"what": "start", "execution": "x", "pid": 1, "dispatch": dispatch, "token": dispatch, "due_ms": 10}
    return line | {"start_ms": at_ms, "payload": {"v": 1}}


def _end(*, dispatch: int, at_ms: int) -> dict[str, Any]:
    return {"what": "end", "execution": "x", "pid": 1, "dispatch": dispatch, "end_ms": at_ms}


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
