"""A peer for tests: it keeps jobs in memory, runs them on time, and can be told to misbehave.

python fake_peer.py [dies|hangs|garbage|wrong|shouts|loses|repeats|early|forgets]
"""

import asyncio
import os
import sys
import time
from typing import Any

from bench.peers.contract.speak import Notes, Program, numbered, speak

Order = dict[str, Any]


class FakeProgram(Program):
    def __init__(self, fault: str) -> None:
        self._fault = fault
        self._due: dict[int, int] = {}
        self._done: set[int] = set()
        self._running: set[asyncio.Task[None]] = set()
        self._crons = 0
        self._wait_ms = 0

    async def work(self, order: Order) -> Order:
        match self._fault:
            case "dies":
                print("out of luck", file=sys.stderr, flush=True)
                os._exit(3)
            case "hangs":
                await asyncio.sleep(3600)
            case "garbage":
                print("hello", flush=True)  # a print is no answer
                os.write(_answers(), b"hello\n")
            case "wrong":
                return {"done": "something else"}
            case "shouts":
                os.write(_answers(), b"x" * 200_000 + b"\n")
            case "forgets":
                return {}
        self._notes = Notes(order["notes"], order["each"])
        return {"pids": {"worker": [os.getpid()], "scheduler": [os.getpid()]}}

    async def create(self, order: Order) -> Order:
        self._wait_ms = order["waitMs"]
        for number, due_ms in numbered(order):
            self._due[number] = due_ms
            if due_ms < time.time() * 1000 + 3_600_000:
                task = asyncio.create_task(self._run(number, due_ms))
                self._running.add(task)
                task.add_done_callback(self._running.discard)
        return {"created": order["jobs"]}

    async def _run(self, number: int, due_ms: int) -> None:
        ahead_ms = 200 if self._fault == "early" else -1
        await asyncio.sleep(max(0.0, (due_ms - ahead_ms) / 1000 - time.time()))
        counts = number >= 100_000_000  # warm-ups are left alone
        for _ in range(2 if counts and self._fault == "repeats" else 1):
            self._notes.start(number)
        if self._wait_ms:
            await asyncio.sleep(self._wait_ms / 1000)
            self._notes.end(number)
        self._done.add(number)

    async def started(self, order: Order) -> Order:
        return {"started": None if self._fault == "loses" else self._notes.started}

    async def look(self, order: Order) -> Order:
        return {"open": any(due <= order["untilMs"] and number not in self._done for number, due in self._due.items())}

    async def count(self, order: Order) -> Order:
        asked = {number for number in self._due if order["first"] <= number < order["end"]}
        done = asked & self._done
        recorded = len(done) - (2 if self._fault == "loses" else 0)
        return {"recorded": recorded, "left": len(asked - done), "lastMs": None}

    async def end(self, order: Order) -> None:
        if hasattr(self, "_notes"):
            self._notes.write()


def _answers() -> int:
    """Where answers go; standard output has been led elsewhere."""
    return next(fd for fd in range(3, 20) if _is_pipe_of_answers(fd))


def _is_pipe_of_answers(fd: int) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{fd}") == _ANSWERS
    except OSError:
        return False


if __name__ == "__main__":
    _ANSWERS = os.readlink("/proc/self/fd/1")
    speak(FakeProgram(sys.argv[1] if len(sys.argv) > 1 else ""))
