"""Backfills: executions for past times of a schedule."""

from typing import Any

import pytest

from noonday.intake import backfill_service
from noonday.model.caller import Caller
from noonday.model.errors import InvalidInput, NotFound
from noonday.model.ids import TenantId
from noonday.model.job import JobType, Target
from noonday.model.view import BackfillView
from tests.api.engine import NOON_MS, Backstage
from tests.support.factories import DAY, HOUR, MINUTE, job_id, spec

ANN = Caller(TenantId("acme"), "ann", frozenset({"write"}))
DEMO = Target("demo", "demo.echo")


async def job_of(backstage: Backstage, **fields: Any) -> str:
    return (await backstage.services.jobs.create(ANN, spec(target=DEMO, **fields))).job_id


async def minutely(backstage: Backstage) -> str:
    return await job_of(backstage, type=JobType.CRON, schedule="* * * * *")


async def backfill(backstage: Backstage, job: str, minutes: int, **given: Any) -> BackfillView:
    """Backfill the last minutes before an hour ago."""
    to_ms = NOON_MS - HOUR
    asked = {"from_ms": to_ms - minutes * MINUTE + 1, "to_ms": to_ms, "backfill_id": "b1", "preview": False, **given}
    return await backstage.services.backfills.backfill(ANN, job, **asked)


async def test_preview_counts_and_creates_nothing(backstage: Backstage) -> None:
    job = await minutely(backstage)
    view = await backfill(backstage, job, 7, preview=True)
    assert (view.total, view.created, len(view.first)) == (7, 0, backfill_service.SHOWN)
    assert (await backstage.services.executions.list_executions(ANN, job)).executions == ()


async def test_backfill_creates_all_pages(backstage: Backstage) -> None:
    count = backfill_service.PAGE + 1
    assert (await backfill(backstage, await minutely(backstage), count)).created == count


async def test_repeated_backfill_creates_only_the_missing_executions(backstage: Backstage) -> None:
    job = await minutely(backstage)
    await backfill(backstage, job, 3)
    assert (await backfill(backstage, job, 5)).created == 2


async def test_backfill_is_one_entry_of_the_audit_log(backstage: Backstage) -> None:
    job = await minutely(backstage)
    await backfill(backstage, job, backfill_service.PAGE + 1)
    found = await backstage.services.audit.list_entries(ANN, target=job)
    assert [entry.action for entry in found.entries].count("job.backfill") == 1


async def test_one_shot_cannot_be_backfilled(backstage: Backstage) -> None:
    with pytest.raises(InvalidInput, match="CRON and INTERVAL"):
        await backfill(backstage, await job_of(backstage), 1)


async def test_backfill_of_the_future_is_refused(backstage: Backstage) -> None:
    with pytest.raises(InvalidInput, match="in the future"):
        await backfill(backstage, await minutely(backstage), 1, to_ms=NOON_MS + 1)


async def test_range_with_too_many_occurrences_is_refused(backstage: Backstage) -> None:
    with pytest.raises(InvalidInput, match="split it"):
        await backfill(backstage, await minutely(backstage), 1, from_ms=NOON_MS - 100 * DAY)


async def test_backfill_of_an_unknown_job_is_not_found(backstage: Backstage) -> None:
    unknown = job_id()
    with pytest.raises(NotFound) as missing:
        await backfill(backstage, unknown, 1)
    assert missing.value.context["jobId"] == unknown
