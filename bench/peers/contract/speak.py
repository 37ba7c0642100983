"""The part of the contract (bench/peers/__init__.py) that programs in Python share. It needs the standard library only."""

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

CALLERS = 16
MINUTE_MS = 60_000


class Notes:
    """The calls of handlers, as lines. Several processes may append to one file."""

    def __init__(self, path: str, each: bool) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._each = each
        self._lines: list[tuple[int, int, str]] = []
        self.started = 0

    def start(self, number: int) -> None:
        self.started += 1
        self._note(number, "\n")

    def end(self, number: int) -> None:
        self._note(number, " end\n")

    def write(self) -> None:
        lines, self._lines = self._lines, []
        text = "".join(f"{number} {ns // 1000}{rest}" for number, ns, rest in lines).encode()
        while text:
            text = text[os.write(self._file, text) :]

    def _note(self, number: int, rest: str) -> None:
        self._lines.append((number, time.time_ns(), rest))
        if self._each:
            self.write()


class Program:
    """What the orders do. A program overrides what its peer has."""

    async def prepare(self, order: dict[str, Any]) -> dict[str, Any] | None:
        return None

    async def work(self, order: dict[str, Any]) -> dict[str, Any] | None:
        raise NotImplementedError

    async def create(self, order: dict[str, Any]) -> dict[str, Any] | None:
        raise NotImplementedError

    async def crons(self, order: dict[str, Any]) -> dict[str, Any] | None:
        raise NotImplementedError

    async def started(self, order: dict[str, Any]) -> dict[str, Any] | None:
        return {"started": None}

    async def look(self, order: dict[str, Any]) -> dict[str, Any] | None:
        raise NotImplementedError

    async def count(self, order: dict[str, Any]) -> dict[str, Any] | None:
        raise NotImplementedError

    async def end(self, order: dict[str, Any]) -> dict[str, Any] | None:
        return None


def numbered(order: dict[str, Any]) -> list[tuple[int, int]]:
    """The numbers of an order to create, each with its due time."""
    return [
        (order["first"] + place, order["dueMs"] + place * order["stepUs"] // 1000) for place in range(order["jobs"])
    ]


async def by_callers(jobs: list[tuple[int, int]], callers: int, create: Callable[[int, int], Awaitable[Any]]) -> None:
    """One job a call; each caller waits for its answer before it calls again."""
    left = iter(jobs)

    async def call() -> None:
        for number, due_ms in left:
            await create(number, due_ms)

    await asyncio.gather(*(call() for _ in range(callers)))


def speak(program: Program, *, runner: Callable[[Any], None] = asyncio.run) -> None:
    """Carry out orders until the last one, or until the runner is gone."""
    out = os.dup(1)
    os.dup2(2, 1)  # whatever a library prints is not an answer
    runner(_speak(program, out))


async def _speak(program: Program, out: int) -> None:
    loop = asyncio.get_running_loop()
    orders = asyncio.StreamReader(limit=1 << 20)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    while line := await orders.readline():
        order = json.loads(line)
        begun = time.perf_counter()
        try:
            answer = {"done": order["do"], **(await getattr(program, order["do"])(order) or {})}
        except Exception as error:
            answer = {"failed": f"{type(error).__name__}: {error}"[:500]}
        if order["do"] == "create":
            answer["sec"] = time.perf_counter() - begun
        os.write(out, json.dumps(answer).encode() + b"\n")
        if order["do"] == "end":
            return
    await program.end({})  # the runner is gone
