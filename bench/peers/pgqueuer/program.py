"""pgqueuer, through its own queries and manager."""

import asyncio
import json
import os
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
from pgqueuer import AsyncpgPoolDriver, Job, PgQueuer, Queries
from speak import CALLERS, Notes, Program, by_callers, numbered, speak

PAGE = 5_000
BATCH = 100
POLL = timedelta(milliseconds=100)

Order = dict[str, Any]

_LOOK = """
SELECT EXISTS (SELECT 1 FROM pgqueuer WHERE execute_after <= to_timestamp($1::float8 / 1000))
"""
_LEFT = """
SELECT count(*) FROM pgqueuer WHERE (convert_from(payload, 'UTF8')::json ->> 'n')::bigint BETWEEN $1 AND $2
"""


class PgQueuerProgram(Program):
    def __init__(self) -> None:
        self._pool: Any = None
        self._notes: Notes | None = None
        self._pgq: PgQueuer | None = None
        self._running: asyncio.Task[None] | None = None
        self._crons = 0

    async def prepare(self, order: Order) -> None:
        await (await self._queries()).install()

    async def work(self, order: Order) -> Order:
        notes = self._notes = Notes(order["notes"], order["each"])
        await self._queries()
        pgq = self._pgq = PgQueuer.from_asyncpg_pool(self._pool)

        @pgq.entrypoint("note")
        async def note(job: Job) -> None:
            data = json.loads(job.payload or b"")
            notes.start(data["n"])
            if wait_ms := data.get("w"):
                await asyncio.sleep(wait_ms / 1000)
                notes.end(data["n"])

        for number in range(self._crons):
            self._add_cron(pgq, notes, number)
        self._running = asyncio.create_task(pgq.run(dequeue_timeout=POLL, batch_size=BATCH))
        return {"pids": {"worker": [os.getpid()], "scheduler": [os.getpid()]}}

    def _add_cron(self, pgq: PgQueuer, notes: Notes, number: int) -> None:
        @pgq.schedule(f"cron{number}", "* * * * *")
        async def fire(_: Any) -> None:
            notes.start(number)

    async def crons(self, order: Order) -> None:
        self._crons = order["jobs"]

    async def create(self, order: Order) -> Order:
        queries, jobs, wait_ms = await self._queries(), numbered(order), order["waitMs"]
        if order["way"] == "bulk":
            for at in range(0, len(jobs), PAGE):
                page = jobs[at : at + PAGE]
                await queries.enqueue(
                    ["note"] * len(page),
                    [_payload(number, wait_ms) for number, _ in page],
                    [0] * len(page),
                    [_ahead(due_ms) for _, due_ms in page],
                )
        else:
            await by_callers(
                jobs,
                1 if order["way"] == "single" else CALLERS,
                lambda number, due_ms: queries.enqueue("note", _payload(number, wait_ms), execute_after=_ahead(due_ms)),
            )
        return {"created": len(jobs)}

    async def started(self, order: Order) -> Order:
        return {"started": self._notes.started if self._notes else 0}

    async def look(self, order: Order) -> Order:
        return {"open": await self._pool.fetchval(_LOOK, order["untilMs"])}

    async def count(self, order: Order) -> Order:
        left = await self._pool.fetchval(_LEFT, order["first"], order["end"] - 1)
        return {"recorded": None, "left": left, "lastMs": None}

    async def end(self, order: Order) -> None:
        if self._pgq and self._running:
            self._pgq.shutdown.set()
            await asyncio.wait([self._running], timeout=20)
        if self._notes:
            self._notes.write()

    async def _queries(self) -> Queries:
        if self._pool is None:
            self._pool = await asyncpg.create_pool(os.environ["BENCH_STORE"], min_size=2, max_size=10 + CALLERS)
        return Queries(AsyncpgPoolDriver(self._pool))


def _payload(number: int, wait_ms: int) -> bytes:
    return json.dumps({"n": number, "w": wait_ms} if wait_ms else {"n": number}).encode()


def _ahead(due_ms: int) -> timedelta:
    return datetime.fromtimestamp(due_ms / 1000, UTC) - datetime.now(UTC)


if __name__ == "__main__":
    speak(PgQueuerProgram())
