"""The parent process of a worker: signals, exit codes, successors, and the end of all processes."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.machine import has_ended

from tests.support.eventually import eventually

ROOT = Path(__file__).parents[2]
PATIENCE_SEC = 60.0


class Family:
    """A parent, and the notes of its workers in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.worker.parent_program", str(folder)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
            stderr=subprocess.PIPE,
        )

    def pids(self, what: str) -> list[int]:
        return [int(path.suffix[1:]) for path in self.folder.glob(f"{what}.*")]

    async def works(self, but: int = 0) -> int:
        """Wait for a worker that has begun, other than one, and return its pid."""
        return await eventually(lambda: next((pid for pid in self.pids("works") if pid != but), 0), PATIENCE_SEC)

    def say(self, what: str, text: str = "") -> None:
        draft = self.folder / "draft"
        draft.write_text(text)
        draft.rename(self.folder / what)

    async def ends(self) -> int:
        code = await eventually(
            lambda: (self.process.poll(),) if self.process.poll() is not None else None, PATIENCE_SEC
        )
        assert code is not None
        assert code[0] is not None
        return code[0]

    async def gone(self, pid: int) -> None:
        await eventually(lambda: has_ended(pid), PATIENCE_SEC)


@pytest.fixture
def family(tmp_path: Path) -> Iterator[Family]:
    family = Family(tmp_path)
    yield family
    family.process.kill()
    family.process.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_is_passed_on_and_the_exit_code_is_the_workers(family: Family, number: signal.Signals) -> None:
    pid = await family.works()
    family.process.send_signal(number)

    assert await family.ends() == 0
    assert (family.folder / f"told.{pid}").read_text() == str(int(number))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "text", "code"),
    [
        ("leave", "7", 7),
        ("leave", "0", 0),
        ("die", str(int(signal.SIGSEGV)), 139),
        ("die", str(int(signal.SIGKILL)), 137),
    ],
)
async def test_the_end_of_the_worker_is_the_end_of_the_parent(family: Family, what: str, text: str, code: int) -> None:
    await family.works()
    family.say(what, text)

    assert await family.ends() == code


@pytest.mark.slow
async def test_a_second_signal_kills_a_worker_that_does_not_listen(family: Family) -> None:
    family.say("stubborn")
    pid = await family.works()
    family.process.send_signal(signal.SIGTERM)
    await eventually(lambda: _pending_done(family.process.pid), PATIENCE_SEC)
    family.process.send_signal(signal.SIGTERM)

    assert await family.ends() == 128 + signal.SIGTERM
    await family.gone(pid)


@pytest.mark.slow
async def test_no_worker_outlives_a_parent_that_was_killed(family: Family) -> None:
    pid = await family.works()
    family.process.kill()
    await family.gone(pid)


@pytest.mark.slow
async def test_a_successor_takes_over_and_the_old_worker_retires(family: Family) -> None:
    old = await family.works()
    family.say(f"wear-out.{old}")
    new = await family.works(but=old)
    await eventually(lambda: family.pids("retired") == [old], PATIENCE_SEC)
    await family.gone(old)
    ports = {path.read_text() for path in family.folder.glob("port.*")}

    assert family.process.poll() is None, "the parent goes on"
    assert len(ports) == 1, "the successor listens where the old one did"
    family.process.terminate()
    assert await family.ends() == 0
    assert family.pids("told") == [new]


@pytest.mark.slow
async def test_a_successor_that_does_not_come_up_is_tried_again_while_the_old_worker_goes_on(family: Family) -> None:
    old = await family.works()
    family.say("fail")
    family.say(f"wear-out.{old}")
    await eventually(lambda: len(family.pids("failed")) >= 2, PATIENCE_SEC)
    assert family.pids("retired") == []
    (family.folder / "fail").unlink()

    await family.works(but=old)
    await eventually(lambda: family.pids("retired") == [old], PATIENCE_SEC)


@pytest.mark.slow
async def test_a_worker_that_ends_takes_a_starting_successor_with_it(family: Family) -> None:
    old = await family.works()
    family.say("fail")
    family.say(f"wear-out.{old}")
    await eventually(lambda: family.pids("failed"), PATIENCE_SEC)
    family.say("leave", "5")

    assert await family.ends() == 5


@pytest.mark.slow
def test_the_parent_imports_nothing_but_the_standard_library() -> None:
    code = "import sys, noonday.cli.entry, noonday.worker.parent as p; print(*sorted(m.split('.')[0] for m in sys.modules))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()

    assert {"noonday", "subprocess"} <= set(shown)
    assert not {"asyncio", "click", "msgspec", "structlog", "rich", "uvicorn"} & set(shown)


def _pending_done(pid: int) -> bool:
    """Whether a process has no pending signal: two pending signals of one kind are one."""
    status = Path(f"/proc/{pid}/status").read_text()
    pending = [line.split()[1] for line in status.splitlines() if line.startswith(("SigPnd", "ShdPnd"))]
    return all(int(word, 16) == 0 for word in pending)
