"""Handlers that run in separate processes."""

import inspect
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from noonday.model.errors import DoNotRetry
from noonday.worker.context import Context, Snooze

RESOLVER = f"{__name__}:codec_of"

Codec = tuple[Callable[[bytes], Any] | None, Callable[[Any], bytes] | None]


def codec_of(function: Callable[..., Any]) -> Codec:
    takes_payload = len(inspect.signature(function).parameters) == 2
    return (msgspec.json.decode if takes_payload else None), msgspec.json.encode


def add(ctx: Context, payload: list[int]) -> int:
    return sum(payload)


def beat_too_much(ctx: Context) -> None:
    ctx.heartbeat("x" * 100)


def echo(ctx: Context, payload: Any) -> Any:
    return payload


@dataclass(frozen=True)
class Rectangle:
    width: int
    height: int


def area(ctx: Context, payload: Rectangle) -> int:
    return payload.width * payload.height


def describe(ctx: Context) -> dict[str, Any]:
    return {
        "execution": ctx.execution_id,
        "attempt": ctx.attempt,
        "token": ctx.token,
        "progress": ctx.progress,
        "pid": os.getpid(),
    }


def pid(ctx: Context) -> int:
    return os.getpid()


def divide_by_zero(ctx: Context) -> float:
    return 1 / 0


def give_up_for_good(ctx: Context) -> None:
    raise DoNotRetry("the customer is gone")


def come_back_later(ctx: Context) -> None:
    raise Snooze(2.5)


def return_a_lock(ctx: Context) -> Any:
    return threading.Lock()


def return_text(ctx: Context, size: int) -> str:
    return "x" * size


def beat_with_progress(ctx: Context) -> None:
    ctx.heartbeat({"page": 1})
    ctx.heartbeat({"page": 2})
    ctx.heartbeat()


def wait_until_cancelled(ctx: Context) -> str | None:
    _say_pid(ctx)
    while not ctx.cancelled:
        time.sleep(0.002)
    return ctx.cancel_reason


def raise_when_cancelled(ctx: Context) -> None:
    _say_pid(ctx)
    while True:
        ctx.raise_if_cancelled()
        time.sleep(0.002)


def never_listen(ctx: Context) -> None:
    _say_pid(ctx)
    while True:
        time.sleep(1)


def hold_the_interpreter(ctx: Context) -> int:
    """Block the interpreter: no other thread of the process runs until this ends, which takes days."""
    _say_pid(ctx)
    return sum(range(10**15))


def start_a_program(ctx: Context) -> None:
    program = subprocess.Popen(["sleep", "600"])
    ctx.heartbeat(program.pid)
    program.wait()


def start_a_program_and_crash(ctx: Context) -> None:
    ctx.heartbeat(subprocess.Popen(["sleep", "600"]).pid)
    os.kill(os.getpid(), signal.SIGSEGV)


def fork_and_crash(ctx: Context) -> None:
    forked = os.fork()
    if forked == 0:
        signal.pause()
    ctx.heartbeat(forked)
    os._exit(3)


def fork_and_terminate(ctx: Context) -> int:
    forked = os.fork()
    if forked == 0:
        signal.pause()
    os.kill(forked, signal.SIGTERM)
    return os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1])


def kill_itself(ctx: Context, number: int) -> str:
    os.kill(os.getpid(), number)
    return "still here"


def leave(ctx: Context, code: int) -> None:
    os._exit(code)


def list_open_files(ctx: Context) -> list[str]:
    folder = Path("/proc/self/fd")
    return [os.readlink(folder / name) for name in os.listdir(folder) if (folder / name).exists()]


def wait_for_file(ctx: Context, path: str) -> int:
    ctx.heartbeat({"waits": True})
    while not os.path.exists(path):
        time.sleep(0.002)
    return os.getpid()


def wait_for_named_file(ctx: Context) -> None:
    """Wait until a file exists; the name of the job is its path."""
    Path(f"{ctx.job_name}.entered").touch()
    while not os.path.exists(str(ctx.job_name)):
        time.sleep(0.002)


def leave_a_thread_that_beats(ctx: Context, path: str) -> None:
    def beat_once_it_is_there() -> None:
        while not os.path.exists(path):
            time.sleep(0.002)
        ctx.heartbeat({"of": "the former run"})
        Path(f"{path}.done").touch()

    threading.Thread(target=beat_once_it_is_there, daemon=True).start()


def print_a_word(ctx: Context) -> None:
    print("spoken", end="")


def _wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda ctx: function(ctx)


def hidden(ctx: Context) -> None:
    pass


HIDDEN = hidden
hidden = _wrapped(hidden)


def _say_pid(ctx: Context) -> None:
    ctx.heartbeat(os.getpid())
