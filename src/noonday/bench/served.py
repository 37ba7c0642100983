"""`noonday up` as a process, on a data file of ours."""

import http.client
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from noonday.api.auth import mint
from noonday.bench import BenchFailed
from noonday.bench.engine import environment
from noonday.runtime.clock import SystemClock

READY_WITHIN_SEC = 60
STOP_WITHIN_SEC = 60
LOOK_EVERY_SEC = 0.01


class Served:
    """A server that is ready."""

    def __init__(self, pid: int, url: str, token: str, startup_sec: float) -> None:
        self.pid = pid
        self.url = url
        self.token = token
        self.startup_sec = startup_sec
        """From the start of the process, the interpreter included, until /readyz said yes."""


@contextmanager
def serving(data: str) -> Iterator[Served]:
    """Start it, and stop it in order. Raises BenchFailed."""
    secret, port = secrets.token_urlsafe(32), _free_port()
    complaints = Path(f"{data}.stderr")
    with complaints.open("wb") as stderr:
        begun = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "noonday", "up", "--port", str(port), "--data", data],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            cwd=Path(data).parent,
            env=environment() | {"NOONDAY_AUTH_SECRET": secret},
            start_new_session=True,
        )
    try:
        _await_ready(process, port, complaints)
        yield Served(process.pid, f"http://127.0.0.1:{port}", _token(secret), time.perf_counter() - begun)
    finally:
        _stop(process)


def _await_ready(process: "subprocess.Popen[bytes]", port: int, complaints: Path) -> None:
    deadline = time.monotonic() + READY_WITHIN_SEC
    while not _is_ready(port):
        if process.poll() is not None:
            raise BenchFailed(f"`noonday up` ended: {complaints.read_text(errors='replace')[-1000:].strip()}")
        if time.monotonic() > deadline:
            raise BenchFailed(f"`noonday up` was not ready within {READY_WITHIN_SEC} s")
        time.sleep(LOOK_EVERY_SEC)


def _is_ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(STOP_WITHIN_SEC)
    process.kill()
    process.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _token(secret: str) -> str:
    now = SystemClock().now_ms() / 1000
    return mint(secret, tenant="default", subject=f"bench:{os.getpid()}", scopes=["admin"], ttl_seconds=86_400, now=now)
