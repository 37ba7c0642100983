"""A real process on a real file, killed with -9 at points of chance, and read by the checker of the simulation."""

import os
import signal
import time
from pathlib import Path
from random import SystemRandom

import pytest

from tests.scenarios.life import Life, now_ms
from tests.scenarios.process import served, until

SEED = int(os.environ.get("NOONDAY_KILL_SEED") or SystemRandom().randrange(10**9))
KILLS = int(os.environ.get("NOONDAY_KILLS") or 25)


@pytest.mark.slow
async def test_no_promise_is_broken_by_a_process_that_is_killed_again_and_again(tmp_path: Path) -> None:
    life = Life(tmp_path, SEED)

    problems = await life.live(KILLS)

    assert not problems, f"to ask and kill like this again: NOONDAY_KILL_SEED={SEED}; kept in {tmp_path}\n{problems}"
    assert len(life.server.lines("start")) > KILLS
