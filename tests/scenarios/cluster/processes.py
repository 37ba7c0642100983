"""A process of a cluster, which a scenario starts, stops, kills, freezes and wakes."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path

from tests.scenarios.process import ROOT, until

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
        """`clock_off_sec`: what its clock is wrong by."""
        self.name = name
        self.kind = kind
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
        return self._process.pid

    @property
    def url(self) -> str | None:
        """Where it answers, once it does."""
        found = re.search(r"http://\S+", self._out.read_text())
        return found[0] if found else None

    @property
    def said(self) -> str:
        """What it wrote for people: its log, and why it ended."""
        return self._err.read_text()

    def will_say(self, words: str) -> Awaitable[None]:
        """What waits until it has said this, in what it says from now on."""
        already = len(self.said)
        return until(lambda: words in self.said[already:])

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def ended_with(self) -> int | None:
        """Its exit code, once it has one."""
        return self._process.poll()

    async def ready(self) -> "Process":
        """Wait until it has begun its work."""

        def look() -> bool:
            assert self.is_alive, f"{self.name} ended with {self._process.returncode}: {self.said[-3000:]}"
            return self.url is not None

        await until(look)
        return self

    def kill(self) -> None:
        """kill -9, if it is alive; also if it is frozen. Afterwards it is dead."""
        if self.is_alive:
            self._process.kill()
            self._process.wait()

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Ask it to end in good order, without waiting for it."""
        self._process.send_signal(signal.SIGTERM)

    async def exit_code(self) -> int:
        """Wait until it has ended by itself."""
        await until(lambda: not self.is_alive)
        return self._process.returncode


def _without_ours(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if not name.startswith("NOONDAY_")}
