"""Dramatiq, through its actors and its own command."""

import asyncio
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import redis
from speak import CALLERS, Program, by_callers, numbered, speak

import tasks

MESSAGES = ("dramatiq:default.msgs", "dramatiq:default.DQ.msgs")

Order = dict[str, Any]


class DramatiqProgram(Program):
    def __init__(self) -> None:
        self._redis = redis.Redis.from_url(os.environ["BENCH_STORE"])
        self._callers = ThreadPoolExecutor(CALLERS)
        self._process: subprocess.Popen[bytes] | None = None

    async def work(self, order: Order) -> Order:
        environ = {**os.environ, "BENCH_NOTES": order["notes"]}
        command = [sys.executable, "-m", "dramatiq", "tasks", "--processes", "2", "--threads", "8"]
        self._process = await asyncio.to_thread(subprocess.Popen, command, env=environ, stdin=subprocess.DEVNULL)
        return {"pids": {"worker": [self._process.pid], "scheduler": [self._process.pid]}}

    async def create(self, order: Order) -> Order:
        loop, jobs = asyncio.get_running_loop(), numbered(order)

        def create(number: int, due_ms: int) -> None:
            delay = max(0, due_ms - int(time.time() * 1000))
            tasks.note.send_with_options(args=(number, order["waitMs"]), delay=delay)

        async def create_in_thread(number: int, due_ms: int) -> None:
            await loop.run_in_executor(self._callers, create, number, due_ms)

        if order["way"] == "single":
            for number, due_ms in jobs:
                create(number, due_ms)
        else:
            await by_callers(jobs, CALLERS, create_in_thread)
        return {"created": len(jobs)}

    async def look(self, order: Order) -> Order:
        return {"open": any(self._redis.hlen(key) for key in MESSAGES)}

    async def count(self, order: Order) -> Order:
        """Messages are deleted when they are acked: what is left is counted by their numbers."""
        numbers = {int(json.loads(body)["args"][0]) for key in MESSAGES for body in self._redis.hvals(key)}
        left = sum(order["first"] <= number < order["end"] for number in numbers)
        return {"recorded": None, "left": left, "lastMs": None}

    async def end(self, order: Order) -> None:
        if self._process:
            self._process.terminate()
            try:
                await asyncio.to_thread(self._process.wait, 20)
            except subprocess.TimeoutExpired:
                self._process.kill()


if __name__ == "__main__":
    speak(DramatiqProgram())
