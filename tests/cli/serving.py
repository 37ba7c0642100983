"""`noonday up` as a real process."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic
from typing import Any, Self

DEADLINE_SEC = 120

APP = """
from noonday import Context, Noonday

app = Noonday()


@app.handler("shop.add", pool="shop")
async def add(ctx: Context, payload: dict[str, int]) -> int:
    return payload["a"] + payload["b"]


@app.cron("0 3 * * *", timezone="Europe/Berlin", name="shop.nightly", pool="shop")
async def nightly(ctx: Context) -> None: ...
"""


def plain_environment(**more: str) -> dict[str, str]:
    """The environment of this process, without settings that a developer may have."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("NOONDAY_")}
    return {**kept, "PYTHONUNBUFFERED": "1", **more}


class Up:
    """A server in a folder of its own, from its greeting to its end."""

    def __init__(self, folder: Path, *words: str, environ: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.data = folder / "noonday.db"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "noonday", "up", *words],
            cwd=folder,
            env=plain_environment(**(environ or {})),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.greeting = self._read_greeting()
        found = re.search(r"^API +(http://\S+)$", self.greeting, re.MULTILINE)
        if not found:
            self.process.kill()
            raise AssertionError(f"{self.greeting}\n{self.process.communicate()}")
        self.url = found[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.process.kill()
        self.process.communicate()

    def end(self, *signals: signal.Signals) -> tuple[int, str, str]:
        """End the process. Returns its exit code, and its remaining output on stdout and stderr."""
        for number in signals:
            self.process.send_signal(number)
        out, err = self.process.communicate(timeout=DEADLINE_SEC)
        return self.process.returncode, out, err

    @property
    def environ(self) -> dict[str, str]:
        """The variables by which commands find it."""
        return {"NOONDAY_URL": self.url, "NOONDAY_DATA": str(self.data)}

    def _read_greeting(self) -> str:
        assert self.process.stdout is not None
        watchdog = threading.Timer(DEADLINE_SEC, self.process.kill)
        watchdog.start()
        lines = []
        for line in self.process.stdout:
            lines.append(line)
            if line.startswith("Stop with"):
                break
        watchdog.cancel()
        return "".join(lines)


def eventually(look: Callable[[], Any], deadline_sec: float = DEADLINE_SEC) -> Any:
    """Return what `look` returns as soon as it is true. Each call is a request to another process, so this does not spin."""
    until = monotonic() + deadline_sec
    while True:
        found = look()
        if found:
            return found
        assert monotonic() < until, f"{look} did not come true in {deadline_sec} s"
