"""Celery, through its application and its own commands."""

import asyncio
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import redis
from speak import CALLERS, Program, by_callers, numbered, speak

import tasks

READY_WITHIN_SEC = 60

Order = dict[str, Any]


class CeleryProgram(Program):
    def __init__(self) -> None:
        self._redis = redis.Redis.from_url(os.environ["BENCH_STORE"])
        self._callers = ThreadPoolExecutor(CALLERS)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._crons = 0

    async def crons(self, order: Order) -> None:
        self._crons = order["jobs"]

    async def work(self, order: Order) -> Order:
        environ = {**os.environ, "BENCH_NOTES": order["notes"], "BENCH_CRONS": str(self._crons)}
        worker = self._start(environ, "worker", "--concurrency", "2", "--hostname", f"w{os.getpid()}@%h")
        await asyncio.to_thread(self._await_worker)
        pids = {"worker": [worker.pid], "scheduler": [worker.pid]}
        if self._crons:
            schedule = str(Path(order["notes"]).with_suffix(".beat"))
            pids["scheduler"] = [self._start(environ, "beat", "--schedule", schedule).pid]
        return {"pids": pids}

    def _start(self, environ: dict[str, str], *words: str) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "celery", "-A", "tasks", *words, "--loglevel", "ERROR"]
        self._processes.append(subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL))
        return self._processes[-1]

    def _await_worker(self) -> None:
        name = f"w{os.getpid()}@"
        for _ in range(READY_WITHIN_SEC):
            found = tasks.app.control.ping(timeout=1)
            if any(worker.startswith(name) for each in found for worker in each):
                return
        raise RuntimeError(f"the worker did not answer within {READY_WITHIN_SEC} s")

    async def create(self, order: Order) -> Order:
        loop, jobs = asyncio.get_running_loop(), numbered(order)

        def create(number: int, due_ms: int) -> None:
            at = datetime.fromtimestamp(due_ms / 1000, UTC)
            tasks.note.apply_async((number, order["waitMs"]), eta=at)

        async def create_in_thread(number: int, due_ms: int) -> None:
            await loop.run_in_executor(self._callers, create, number, due_ms)

        if order["way"] == "single":
            for number, due_ms in jobs:
                create(number, due_ms)
        else:
            await by_callers(jobs, CALLERS, create_in_thread)
        return {"created": len(jobs)}

    def _left(self) -> int:
        return self._redis.llen("celery") + self._redis.hlen("unacked")

    async def look(self, order: Order) -> Order:
        return {"open": self._left() > 0}

    async def count(self, order: Order) -> Order:
        """Tasks are deleted when they are acked: what is left is counted by their numbers."""
        bodies = [*self._redis.lrange("celery", 0, -1), *self._redis.hvals("unacked")]
        numbers = [_number(body) for body in bodies]
        left = sum(order["first"] <= number < order["end"] for number in numbers)
        return {"recorded": None, "left": left, "lastMs": None}

    async def end(self, order: Order) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def _number(body: bytes) -> int:
    message = json.loads(body)
    message = message[0] if isinstance(message, list) else message
    return int(message["headers"]["argsrepr"].strip("()").split(",")[0])


if __name__ == "__main__":
    speak(CeleryProgram())
