"""Skips of occurrences: who may skip which, how they are shown, and how they are undone."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from noonday.intake.occurrence_queries import OccurrenceQueries
from noonday.intake.skip_service import SkipService
from noonday.model.errors import Conflict, InvalidInput, NotFound
from noonday.model.filters import SkipRequest
from noonday.model.job import CatchUp, Job
from noonday.model.view import OccurrenceView
from noonday.runtime.offload import ThreadOffload
from tests.intake.parts import ANN, STRANGER, Parts, key, parts_in_memory
from tests.support.factories import HOUR, MINUTE, NOW_MS, every, instant, spec

NEXT = SkipRequest(next=1)


@pytest.fixture
async def parts() -> AsyncIterator[Parts]:
    async with parts_in_memory() as parts:
        yield parts


@pytest.fixture
def skips(parts: Parts) -> SkipService:
    return SkipService(editor=parts.editor, presenter=parts.presenter, clock=parts.clock)


@pytest.fixture
def occurrences(parts: Parts) -> OccurrenceQueries:
    return OccurrenceQueries(
        query_store=parts.store.query_store, blockers=parts.blockers, offload=ThreadOffload(), clock=parts.clock
    )


def at(minutes: int) -> SkipRequest:
    return SkipRequest(at=instant(NOW_MS + minutes * MINUTE), reason="a holiday")


async def shown(occurrences: OccurrenceQueries, of: Job) -> list[OccurrenceView]:
    page = await occurrences.list_occurrences(ANN, of.id, from_ms=NOW_MS, to_ms=NOW_MS + 4 * MINUTE)
    return list(page.occurrences)


async def test_skipped_occurrence_is_shown_before_and_after_its_time(
    parts: Parts, skips: SkipService, occurrences: OccurrenceQueries
) -> None:
    one = await parts.add(every())
    view = await skips.skip(ANN, one.id, at(1))
    assert [(each.at, each.by, each.reason) for each in view.skips] == [(instant(NOW_MS + MINUTE), "ann", "a holiday")]
    before = await shown(occurrences, one)
    assert [each.outcome for each in before][:3] == ["DUE", "SKIPPED", "PLANNED"]
    parts.clock.step(120)
    for minute in range(3):
        await parts.crank.fire(at_ms=NOW_MS + minute * MINUTE)
    after = await shown(occurrences, one)
    assert [each.outcome for each in after][:3] == ["FIRED", "SKIPPED", "FIRED"]
    assert before[1].reason == after[1].reason == "skipped by ann: a holiday"


async def test_next_fire_is_the_first_that_is_not_skipped(parts: Parts, skips: SkipService) -> None:
    one = await parts.add(every())
    view = await skips.skip(ANN, one.id, SkipRequest(next=2))
    assert view.next_fire_at == instant(NOW_MS + 2 * MINUTE)
    more = await skips.skip(ANN, one.id, NEXT)
    assert more.next_fire_at == instant(NOW_MS + 3 * MINUTE)
    assert (len(more.skips), more.version) == (3, 3)


async def test_skip_is_undone_before_its_time(parts: Parts, skips: SkipService) -> None:
    one = await parts.add(every())
    await skips.skip(ANN, one.id, SkipRequest(next=3))
    one_left_out = await skips.undo(ANN, one.id, NOW_MS + MINUTE)
    assert one_left_out.next_fire_at == instant(NOW_MS + MINUTE)
    assert (await skips.undo(ANN, one.id, None)).skips == ()
    fired = (await parts.crank.fire()).dispatches
    assert [each.nominal_ms for each in fired] == [NOW_MS]


async def test_skip_cannot_be_undone_after_its_time(parts: Parts, skips: SkipService) -> None:
    one = await parts.add(every())
    await skips.skip(ANN, one.id, NEXT)
    await parts.crank.fire()
    with pytest.raises(Conflict, match="cannot be undone any more"):
        await skips.undo(ANN, one.id, NOW_MS)
    with pytest.raises(Conflict, match="is not skipped"):
        await skips.undo(ANN, one.id, NOW_MS + MINUTE)


async def test_skip_of_a_skipped_occurrence_changes_nothing(parts: Parts, skips: SkipService) -> None:
    one = await parts.add(every())
    first = await skips.skip(ANN, one.id, at(1))
    again = await skips.skip(ANN, one.id, at(1))
    assert (again.version, again.skips) == (first.version, first.skips)


async def test_occurrence_that_was_dispatched_or_decided_is_not_skipped(parts: Parts, skips: SkipService) -> None:
    one = await parts.add(every())
    await parts.fire(one)
    with pytest.raises(Conflict, match="is decided"):
        await skips.skip(ANN, one.id, at(0))


async def test_time_that_is_no_occurrence_is_refused_with_the_next_one(parts: Parts, skips: SkipService) -> None:
    one = await parts.add(every())
    wrong = SkipRequest(at=instant(NOW_MS) + timedelta(seconds=1))
    with pytest.raises(InvalidInput, match=r"the next one is 2030-01-01T00:01:00\.000Z"):
        await skips.skip(ANN, one.id, wrong)


@pytest.mark.parametrize(
    "request_", [SkipRequest(), SkipRequest(at=instant(NOW_MS), next=1), SkipRequest(next=0), SkipRequest(next=101)]
)
async def test_wrong_request_is_refused(parts: Parts, skips: SkipService, request_: SkipRequest) -> None:
    one = await parts.add(every())
    with pytest.raises(InvalidInput):
        await skips.skip(ANN, one.id, request_)


async def test_number_of_skips_is_bounded(parts: Parts, skips: SkipService) -> None:
    one = await parts.add(every())
    await skips.skip(ANN, one.id, SkipRequest(next=100))
    with pytest.raises(Conflict, match="at most 100 are allowed"):
        await skips.skip(ANN, one.id, NEXT)


async def test_one_shot_and_a_strangers_job_have_nothing_to_skip(parts: Parts, skips: SkipService) -> None:
    once, one = await parts.add(spec(run_at=instant(NOW_MS + HOUR))), await parts.add(every())
    with pytest.raises(Conflict, match="runs once"):
        await skips.skip(ANN, once.id, NEXT)
    with pytest.raises(NotFound):
        await skips.skip(STRANGER, one.id, NEXT)


async def test_repeated_request_skips_once(parts: Parts, skips: SkipService) -> None:
    one = await parts.add(every())
    await skips.skip(ANN, one.id, NEXT, key())
    with pytest.raises(Exception, match="stored response"):
        await skips.skip(ANN, one.id, NEXT, key())
    row = await parts.store.query_store.find_job(one.tenant, one.id)
    assert row is not None
    assert len(row.job.skips) == 1


async def test_runs_left_are_shown_besides_skipped_occurrences(
    parts: Parts, skips: SkipService, occurrences: OccurrenceQueries
) -> None:
    one = await parts.add(every(max_runs=2, catch_up=CatchUp(while_paused=True)))
    await skips.skip(ANN, one.id, at(1))
    assert [each.outcome for each in await shown(occurrences, one)] == ["DUE", "SKIPPED", "PLANNED"]
