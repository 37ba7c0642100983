"""Procrastinate, through its application object."""

import asyncio
import os
from datetime import UTC, datetime
from typing import Any

import procrastinate
from speak import CALLERS, Notes, Program, by_callers, numbered, speak

PAGE = 2_000

Order = dict[str, Any]

_LOOK = """
SELECT EXISTS (SELECT 1 FROM procrastinate_jobs
WHERE status IN ('todo', 'doing') AND scheduled_at <= to_timestamp(%(until)s::float8 / 1000)) AS open
"""
_COUNT = """
SELECT count(*) FILTER (WHERE j.status = 'succeeded') AS recorded, count(*) FILTER (WHERE j.status <> 'succeeded') AS left,
    (extract(epoch FROM max(e.at)) * 1000)::bigint AS "lastMs"
FROM procrastinate_jobs j LEFT JOIN procrastinate_events e ON e.job_id = j.id AND e.type = 'succeeded'
WHERE (j.args ->> 'n')::bigint BETWEEN %(first)s AND %(last)s
"""

connector = procrastinate.PsycopgConnector(conninfo=os.environ.get("BENCH_STORE", ""), min_size=2, max_size=20)
app = procrastinate.App(connector=connector)


class ProcrastinateProgram(Program):
    def __init__(self) -> None:
        self._notes: Notes | None = None
        self._running: asyncio.Task[None] | None = None
        self._open = False

        @app.task(name="note")
        async def note(n: int, w: int = 0) -> None:
            assert self._notes
            self._notes.start(n)
            if w:
                await asyncio.sleep(w / 1000)
                self._notes.end(n)

        @app.task(name="fire")
        async def fire(timestamp: int, n: int) -> None:
            assert self._notes
            self._notes.start(n)

        self._note, self._fire = note, fire

    async def prepare(self, order: Order) -> None:
        await self._connect()
        await app.schema_manager.apply_schema_async()

    async def crons(self, order: Order) -> None:
        for number in range(order["jobs"]):
            app.periodic(cron="* * * * *", periodic_id=f"c{number}", task_kwargs={"n": number})(self._fire)

    async def work(self, order: Order) -> Order:
        await self._connect()
        self._notes = Notes(order["notes"], order["each"])
        self._running = asyncio.create_task(
            app.run_worker_async(concurrency=100, fetch_job_polling_interval=0.1, install_signal_handlers=False)
        )
        return {"pids": {"worker": [os.getpid()], "scheduler": [os.getpid()]}}

    async def create(self, order: Order) -> Order:
        await self._connect()
        jobs, rest = numbered(order), {"w": order["waitMs"]} if order["waitMs"] else {}
        if order["way"] == "bulk":
            for at in range(0, len(jobs), PAGE):
                made = [self._due(due_ms).make_new_job(n=number, **rest) for number, due_ms in jobs[at : at + PAGE]]
                await app.job_manager.batch_defer_jobs_async(jobs=made)
        else:
            await by_callers(
                jobs,
                1 if order["way"] == "single" else CALLERS,
                lambda number, due_ms: self._due(due_ms).defer_async(n=number, **rest),
            )
        return {"created": len(jobs)}

    def _due(self, due_ms: int) -> Any:
        return self._note.configure(schedule_at=datetime.fromtimestamp(due_ms / 1000, UTC))

    async def started(self, order: Order) -> Order:
        return {"started": self._notes.started if self._notes else 0}

    async def look(self, order: Order) -> Order:
        return await connector.execute_query_one_async(_LOOK, until=order["untilMs"])

    async def count(self, order: Order) -> Order:
        return await connector.execute_query_one_async(_COUNT, first=order["first"], last=order["end"] - 1)

    async def end(self, order: Order) -> None:
        if self._running:
            self._running.cancel()
            await asyncio.wait([self._running], timeout=20)
        if self._notes:
            self._notes.write()

    async def _connect(self) -> None:
        if not self._open:
            self._open = True
            await app.open_async()


if __name__ == "__main__":
    speak(ProcrastinateProgram())
