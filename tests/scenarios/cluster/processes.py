"""A process of a cluster. A scenario starts, stops, kills, freezes and wakes it."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path

from bench.machine import has_ended

from tests.scenarios.process import PATIENCE_SEC, ROOT, until

WRONG_CLOCK = "tests.scenarios.cluster.wrong_clock"


class Process:
    """`noonday serve` or `noonday worker`, from its start to its end."""

    def __init__(
        self,
        name: str,
        kind: str,
        words: Sequence[str],
        folder: Path,
        env: Mapping[str, str],
        clock_off_sec: float | None = None,
    ) -> None:
        """`clock_off_sec`: the error of its clock in seconds."""
        self.name = name
        self.kind = kind
        self._has_parent = words[0] == "worker"
        self._pid: int | None = None
        """The pid of a worker's own process, after it was looked up."""
        self._out, self._err = folder / f"{name}.out", folder / f"{name}.err"
        command = ["-m", "noonday"] if clock_off_sec is None else ["-m", WRONG_CLOCK, str(clock_off_sec)]
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(
                [sys.executable, *command, *words, "--port", "0"],
                stdout=out,
                stderr=err,
                env=_without_ours(os.environ) | {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"} | env,
                cwd=folder,
            )

    @property
    def pid(self) -> int:
        """The pid of the process that does the work.

        A worker has a parent process, which is the one that is started and stopped.
        """
        if self._pid is None and self._has_parent and self.is_alive:
            self._pid = next(iter(children_of(self._process.pid)), None)
        return self._pid or self._process.pid

    @property
    def parent_pid(self) -> int:
        """The pid of the process that was started."""
        return self._process.pid

    def send_to_worker(self, number: int) -> None:
        """Signal a worker past its parent."""
        os.kill(self.pid, number)

    @property
    def url(self) -> str | None:
        """Its address, after it has answered."""
        found = re.search(r"http://\S+", self._out.read_text())
        return found[0] if found else None

    @property
    def output(self) -> str:
        """Its log and its last error."""
        return self._err.read_text()

    def will_say(self, words: str) -> Awaitable[None]:
        """Return a coroutine that waits until the process has written these words after this call."""
        already = len(self.output)
        return until(lambda: words in self.output[already:])

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def ended_with(self) -> int | None:
        """Its exit code, if it has ended."""
        return self._process.poll()

    async def ready(self) -> "Process":
        """Wait until it has begun its work."""

        def look() -> bool:
            assert self.is_alive, f"{self.name} ended with {self._process.returncode}: {self.output[-3000:]}"
            return self.url is not None

        await until(look)
        return self

    def kill(self) -> None:
        """Send kill -9, if the process is alive or frozen. It is dead afterwards."""
        if self.is_alive:
            left = {self.pid, *children_of(self._process.pid)}
            self._process.kill()
            self._process.wait()
            deadline = time.monotonic() + PATIENCE_SEC
            while any(Path(f"/proc/{pid}/stat").exists() and not has_ended(pid) for pid in left):
                assert time.monotonic() < deadline, f"{self.name} outlives its parent"
                time.sleep(0.002)

    def freeze(self) -> None:
        self._signal_all(signal.SIGSTOP)

    def wake(self) -> None:
        """Resume the process, unless it was killed while it was frozen."""
        self._signal_all(signal.SIGCONT)

    def stop(self) -> None:
        """Send SIGTERM, without waiting for the end."""
        self._process.send_signal(signal.SIGTERM)

    async def exit_code(self) -> int:
        """Wait until it has ended by itself."""
        await until(lambda: not self.is_alive)
        return self._process.returncode

    def _signal_all(self, number: int) -> None:
        if self.is_alive:
            for pid in (self._process.pid, *children_of(self._process.pid)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)


def children_of(pid: int) -> list[int]:
    """Processes that a process has started and that have not ended, oldest first."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _without_ours(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if not name.startswith("NOONDAY_")}
