"""Commands of ours that serve, as processes: `noonday up`, `noonday serve`, `noonday worker`."""

import http.client
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bench import BenchFailed
from bench.figures import total
from bench.machine import cpu_sec, memory_mb
from noonday.crypto.tokens import mint
from noonday.model.job import Target
from noonday.runtime.clock import SystemClock

READY_WITHIN_SEC = 60
STOP_WITHIN_SEC = 60
LOOK_EVERY_SEC = 0.01
HOST = "127.0.0.1"


@dataclass(frozen=True)
class Up:
    """An engine that is ready."""

    processes: Mapping[str, Sequence[int]]
    """Of the engine, by role."""
    servers: Mapping[str, Sequence[int]]
    """Those that it stands on, as far as they can be seen."""
    startup_sec: float
    """From the start of the processes, the interpreter included, until all of them had said that they are ready."""
    url: str
    """Of the API."""
    token: str
    target: Target
    """What its workers can run."""

    @property
    def cpu_sec(self) -> dict[str, float]:
        return cpu_sec({**self.processes, **self.servers})

    @property
    def rss_mb(self) -> float | None:
        return total({str(pid): memory_mb(pid)[0] for pids in self.processes.values() for pid in pids})


class Process:
    """One command, on a port of its own, in a directory in which it leaves what it has to complain about."""

    def __init__(self, words: Sequence[str], directory: Path, environment: Mapping[str, str]) -> None:
        self.directory = directory
        self._begun = time.perf_counter()
        self._words = words
        self._port = _free_port()
        with self._complaints.open("wb") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "noonday", *words, "--port", str(self._port)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                cwd=directory,
                env=environment,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._port}"

    def await_ready(self) -> float:
        """How many seconds after its start it was. Raises BenchFailed."""
        deadline = time.monotonic() + READY_WITHIN_SEC
        while not self._is_ready():
            if self._process.poll() is not None:
                raise BenchFailed(f"{self._name} ended: {complaints_in(self.directory)}")
            if time.monotonic() > deadline:
                raise BenchFailed(f"{self._name} was not ready within {READY_WITHIN_SEC} s")
            time.sleep(LOOK_EVERY_SEC)
        return time.perf_counter() - self._begun

    def tell_to_stop(self) -> None:
        self._process.terminate()

    def await_end(self, within_sec: float = STOP_WITHIN_SEC) -> None:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(within_sec)
        self._process.kill()
        self._process.wait()

    @property
    def _name(self) -> str:
        return f"`noonday {' '.join(self._words)}`"

    @property
    def _complaints(self) -> Path:
        return self.directory / "stderr"

    def _is_ready(self) -> bool:
        connection = http.client.HTTPConnection(HOST, self._port, timeout=5)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


@contextmanager
def stopped_afterwards(processes: Sequence[Process]) -> Iterator[None]:
    """In order if they are quick about it."""
    try:
        yield
    finally:
        for process in processes:
            process.tell_to_stop()
        for process in processes:
            process.await_end()


def complaints_in(directory: Path) -> str:
    """The end of what a process has said on its standard error."""
    return (directory / "stderr").read_text(errors="replace")[-1000:].strip()


def token_for(secret: str) -> str:
    now = SystemClock().now_ms() / 1000
    return mint(
        secret, tenant="default", subject=f"bench:{os.getpid()}", scopes=["operator"], ttl_seconds=86_400, now=now
    )


def _free_port() -> int:
    with socket.create_server((HOST, 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
