"""APScheduler, in the process that creates the jobs."""

import asyncio
import os
from datetime import UTC, datetime
from typing import Any

from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.cron import CronTrigger
from speak import Notes, Program, numbered, speak
from sqlalchemy import create_engine, text

Order = dict[str, Any]

_notes: list[Notes] = []


async def note(number: int, wait_ms: int = 0) -> None:
    """Found by its name when a job is read from the store."""
    _notes[0].start(number)
    if wait_ms:
        await asyncio.sleep(wait_ms / 1000)
        _notes[0].end(number)


class APSchedulerProgram(Program):
    def __init__(self) -> None:
        url = os.environ["BENCH_STORE"].replace("postgresql://", "postgresql+psycopg://")
        self._engine = create_engine(url)
        self._scheduler: AsyncIOScheduler | None = None
        self._crons = 0

    async def crons(self, order: Order) -> None:
        self._crons = order["jobs"]

    async def work(self, order: Order) -> Order:
        _notes[:] = [Notes(order["notes"], order["each"])]
        scheduler = self._scheduler = AsyncIOScheduler(
            jobstores={"default": SQLAlchemyJobStore(engine=self._engine)},
            job_defaults={"misfire_grace_time": None},
            timezone=UTC,
        )
        scheduler.start()
        for number in range(self._crons):
            scheduler.add_job(note, CronTrigger(second=0, timezone=UTC), args=(number,), id=f"c{number}")
        return {"pids": {"worker": [os.getpid()], "scheduler": [os.getpid()]}}

    async def create(self, order: Order) -> Order:
        assert self._scheduler
        for place, (number, due_ms) in enumerate(numbered(order)):
            at = datetime.fromtimestamp(due_ms / 1000, UTC)
            self._scheduler.add_job(note, "date", run_date=at, args=(number, order["waitMs"]), id=f"n{number}")
            if place % 100 == 99:
                await asyncio.sleep(0)  # the scheduler runs on this loop
        return {"created": order["jobs"]}

    async def started(self, order: Order) -> Order:
        return {"started": _notes[0].started}

    async def look(self, order: Order) -> Order:
        query = "SELECT EXISTS (SELECT 1 FROM apscheduler_jobs WHERE next_run_time <= :until)"
        return {"open": self._ask(query, until=order["untilMs"] / 1000 + 0.001)}

    async def count(self, order: Order) -> Order:
        query = (
            "SELECT count(*) FROM apscheduler_jobs WHERE id ~ '^n' AND substr(id, 2)::bigint BETWEEN :first AND :last"
        )
        left = self._ask(query, first=order["first"], last=order["end"] - 1)
        return {"recorded": None, "left": left, "lastMs": None}

    def _ask(self, query: str, **values: Any) -> Any:
        with self._engine.connect() as connection:
            return connection.execute(text(query), values).scalar()

    async def end(self, order: Order) -> None:
        if self._scheduler:
            self._scheduler.shutdown()
        if _notes:
            _notes[0].write()


if __name__ == "__main__":
    # The store keeps the name of the handler: it must be the same in a process that takes over.
    from program import APSchedulerProgram as Named

    speak(Named())
