"""Occurrences: why each ran or did not run, and which are to come."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from noonday.intake import edits
from noonday.intake.blockers import BlockedBy
from noonday.intake.occurrence_queries import OccurrenceQueries
from noonday.model.errors import InvalidInput, NotFound
from noonday.model.job import CatchUp, CatchUpPolicy, Job, JobType
from noonday.model.view import OccurrencePage
from noonday.ports.offload import InlineOffload
from tests.intake.parts import ANN, STRANGER, Parts, parts_in_memory
from tests.support.factories import HOUR, MINUTE, NOW_MS, POOL, audit, every, instant, report, spec


@pytest.fixture
async def parts() -> AsyncIterator[Parts]:
    async with parts_in_memory() as parts:
        yield parts


@pytest.fixture
def occurrences(parts: Parts) -> OccurrenceQueries:
    return OccurrenceQueries(
        query_store=parts.store.query_store, blockers=parts.blockers, offload=InlineOffload(), clock=parts.clock
    )


async def listed(occurrences: OccurrenceQueries, of: Job, minutes: int = 3, **asked: Any) -> OccurrencePage:
    """List the occurrences of some minutes from now on."""
    bounds = {"from_ms": NOW_MS, "to_ms": NOW_MS + minutes * MINUTE, **asked}
    return await occurrences.list_occurrences(ANN, of.id, **bounds)


async def test_fired_occurrence_names_its_execution_and_the_others_are_planned(
    parts: Parts, occurrences: OccurrenceQueries
) -> None:
    job = await parts.add(every())
    dispatch = await parts.fire(job)
    await parts.crank.settle(report(dispatch))
    page = await listed(occurrences, job)
    assert [each.outcome for each in page.occurrences] == ["FIRED", "PLANNED", "PLANNED", "PLANNED"]
    assert [each.scheduled_at for each in page.occurrences] == [instant(NOW_MS + n * MINUTE) for n in range(4)]
    assert (page.occurrences[0].execution_id, page.occurrences[0].state) == (dispatch.execution_id, "SUCCEEDED")


async def test_missed_occurrences_are_one_range_with_a_count_and_a_reason(
    parts: Parts, occurrences: OccurrenceQueries
) -> None:
    job = await parts.add(every(catch_up=CatchUp(CatchUpPolicy.LATEST)))
    await parts.crank.fire(at_ms=NOW_MS + 3 * MINUTE)
    missed, fired = (await listed(occurrences, job)).occurrences
    assert (missed.outcome, missed.count, fired.outcome) == ("MISSED", 3, "FIRED")
    assert (missed.scheduled_at, missed.until) == (instant(NOW_MS), instant(NOW_MS + 2 * MINUTE))
    assert missed.reason == "catch-up LATEST within 86400 s"


async def test_due_occurrence_names_what_blocks_it(parts: Parts, occurrences: OccurrenceQueries) -> None:
    job = await parts.add()
    (due,) = (await listed(occurrences, job)).occurrences
    assert (due.outcome, due.blocked_by, due.reason) == ("DUE", BlockedBy.NO_WORKERS, f"pool {POOL!r} has no workers")


async def test_occurrences_of_a_paused_job_are_paused_once_they_are_due(
    parts: Parts, occurrences: OccurrenceQueries
) -> None:
    job = await parts.add(every())
    await parts.crank.change(job, lambda before: edits.pause(before, NOW_MS, audit()))
    parts.clock.advance(60)
    page = await listed(occurrences, job)
    assert [each.outcome for each in page.occurrences] == ["PAUSED", "PAUSED", "PLANNED", "PLANNED"]
    assert {each.reason for each in page.occurrences} == {"the job is paused"}


async def test_cancelled_job_has_nothing_to_come(parts: Parts, occurrences: OccurrenceQueries) -> None:
    job = await parts.add(every())
    await parts.fire(job)
    await parts.crank.change(job, lambda before: edits.delete(before, NOW_MS + 1, audit()))
    assert [each.outcome for each in (await listed(occurrences, job)).occurrences] == ["FIRED"]


async def test_no_more_is_planned_than_runs_are_left(parts: Parts, occurrences: OccurrenceQueries) -> None:
    job = await parts.add(every(max_runs=2))
    parts.clock.step(-1)
    assert len((await listed(occurrences, job)).occurrences) == 2


async def test_list_has_at_most_its_limit(parts: Parts, occurrences: OccurrenceQueries) -> None:
    job = await parts.add(every())
    assert len((await listed(occurrences, job, minutes=30, limit=5)).occurrences) == 5


async def test_spread_of_a_planned_occurrence_is_named(parts: Parts, occurrences: OccurrenceQueries) -> None:
    job = await parts.add(every(spread_sec=30))
    *_, planned = (await listed(occurrences, job)).occurrences
    assert planned.reason.startswith("planned; starts ")
    assert planned.reason.endswith(" s later (spread)")


async def test_time_of_a_cron_job_is_shown_in_its_zone(parts: Parts, occurrences: OccurrenceQueries) -> None:
    job = await parts.add(spec(type=JobType.CRON, schedule="0 * * * *", timezone="America/New_York"))
    page = await listed(occurrences, job, from_ms=NOW_MS + MINUTE, to_ms=NOW_MS + HOUR)
    assert [each.local for each in page.occurrences] == ["2029-12-31T20:00:00-05:00"]


async def test_range_that_ends_before_it_begins_is_refused(parts: Parts, occurrences: OccurrenceQueries) -> None:
    with pytest.raises(InvalidInput, match="`to` is before `from`"):
        await listed(occurrences, await parts.add(), minutes=-1)


async def test_job_of_another_tenant_is_not_found(parts: Parts, occurrences: OccurrenceQueries) -> None:
    job = await parts.add()
    with pytest.raises(NotFound):
        await occurrences.list_occurrences(STRANGER, job.id, from_ms=NOW_MS, to_ms=NOW_MS)
