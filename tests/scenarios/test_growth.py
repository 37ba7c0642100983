"""A file that is used for ever does not grow for ever."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from noonday.intake.idempotency import Idempotency
from noonday.model.job import Concurrency, JobSpec, JobType, Target
from noonday.model.retry import RetryPolicy
from noonday.wiring.engine_queries import OWNER
from tests.scenarios.inside import Inside
from tests.scenarios.process import until

LONG = timedelta(days=402)
"""Longer than every retention. The longest one, that of usage, is 400 days."""
RETENTION = {
    f"retention_{name}_days": 1
    for name in ("succeeded", "cancelled", "expired", "dead", "jobs", "decisions", "audit", "alerts")
}
ROUNDS = 6


@pytest.mark.slow
async def test_a_file_whose_jobs_come_and_go_keeps_its_size(tmp_path: Path) -> None:
    inside = Inside(tmp_path)
    sizes = []
    for number in range(ROUNDS):
        async with inside.open(**RETENTION):
            await _put_through(inside, number)
        inside.clock.let_pass(LONG.total_seconds())
        async with inside.open(run=False, **RETENTION):
            await _keep_house(inside)
        sizes.append(_size(inside))

    assert [rows for rows, _ in sizes] == [sizes[0][0]] * ROUNDS
    assert sizes[-1][1] <= 1.2 * sizes[1][1]


async def _put_through(inside: Inside, number: int) -> None:
    """Run some hundred jobs that succeed, die, expire, are cancelled and replaced; one job that always exists."""
    jobs = inside.engine.services.jobs
    await jobs.create(OWNER, _spec(type=JobType.CRON, schedule="0 * * * *", unique_key="always", tags=(f"t{number}",)))
    await jobs.create_ids(OWNER, [_spec() for _ in range(400)])
    await jobs.create_ids(OWNER, [_spec("fail", retry_policy=RetryPolicy(max_attempts=1)) for _ in range(20)])
    await jobs.create_ids(OWNER, [_spec(concurrency=Concurrency(f"key {number}/{n}", 1)) for n in range(20)])
    for n in range(20):
        await jobs.create(OWNER, _spec(), Idempotency(f"{number}/{n}", "print", lambda _: 201, msgspec.json.encode))
        later = await jobs.create(OWNER, _spec(type=JobType.DELAYED, delay_sec=3600))
        await jobs.replace(OWNER, later.job_id, _spec(type=JobType.DELAYED, delay_sec=7200))
        await jobs.delete(OWNER, later.job_id)
    await until(lambda: _is_quiet(inside))


def _spec(handler: str = "note", **fields: Any) -> JobSpec:
    return JobSpec(**{"type": JobType.ONE_TIME, "target": Target("default", handler), **fields})


def _is_quiet(inside: Inside) -> bool:
    now_ms = inside.clock.now_ms()
    due = inside.query(f"SELECT 1 FROM timeline WHERE due_ms <= {now_ms} LIMIT 1")
    return not due and not inside.query("SELECT 1 FROM executions WHERE state < 2 LIMIT 1")


async def _keep_house(inside: Inside) -> None:
    """Do all housekeeping in small steps: incidents become alerts, notices are sent, and old rows are pruned."""
    for name in ("incidents", "notifier", "housekeeper"):
        service = inside.engine.loops[name].service
        for _ in range(50):
            await service.run_once(inside.clock.now_ms())


def _size(inside: Inside) -> tuple[dict[str, int], int]:
    """Rows of each table, and pages of the file."""
    tables = [name for (name,) in inside.query("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    rows = {name: inside.query(f"SELECT count(*) FROM {name}")[0][0] for name in tables}
    return rows, inside.query("PRAGMA page_count")[0][0]
