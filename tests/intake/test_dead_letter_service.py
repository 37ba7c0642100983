"""Dead letters: listed, retried as new executions, and archived."""

from collections.abc import AsyncIterator

import pytest

from noonday.intake import edits
from noonday.intake.dead_letter_service import DeadLetterService
from noonday.intake.idempotency import AlreadyAnswered
from noonday.model.errors import Conflict, NotFound
from noonday.model.filters import DeadFilterQuery
from noonday.model.job import Job
from tests.intake.parts import ANN, STRANGER, Parts, key, parts_in_memory
from tests.support.factories import NOW_MS, POOL, audit, report, spec

ALL = DeadFilterQuery()


@pytest.fixture
async def parts() -> AsyncIterator[Parts]:
    async with parts_in_memory() as parts:
        yield parts


@pytest.fixture
def dead_letters(parts: Parts) -> DeadLetterService:
    return DeadLetterService(
        editor=parts.editor,
        receipts=parts.receipts,
        query_store=parts.store.query_store,
        presenter=parts.presenter,
        clock=parts.clock,
    )


async def buried(parts: Parts, count: int = 1) -> list[Job]:
    """Store jobs, each of which has a dead letter."""
    jobs = [await parts.add(spec(name=f"job {number}")) for number in range(count)]
    for each in jobs:
        await parts.bury(each)
    return jobs


async def test_failed_execution_is_listed_with_its_job_and_its_error(
    parts: Parts, dead_letters: DeadLetterService
) -> None:
    (job,) = await buried(parts)
    (letter,) = (await dead_letters.list_dead_letters(ANN, ALL)).dead_letters
    assert (letter.execution.job_id, letter.execution.job_name) == (job.id, "job 0")
    assert letter.execution.error is not None
    assert letter.execution.error.message == "no such file"
    assert (letter.archived, letter.retried_as) == (False, None)


async def test_pages_list_each_dead_letter_once(parts: Parts, dead_letters: DeadLetterService) -> None:
    jobs = await buried(parts, 3)
    first = await dead_letters.list_dead_letters(ANN, ALL, limit=2)
    rest = await dead_letters.list_dead_letters(ANN, ALL, limit=2, cursor=first.next)
    listed = [letter.execution.job_id for letter in (*first.dead_letters, *rest.dead_letters)]
    assert sorted(listed) == sorted(job.id for job in jobs)
    assert rest.next is None


async def test_dead_letters_of_another_tenant_are_not_listed(parts: Parts, dead_letters: DeadLetterService) -> None:
    await buried(parts)
    assert (await dead_letters.list_dead_letters(STRANGER, ALL)).dead_letters == ()


async def test_retry_is_a_new_execution_that_names_the_dead_one(parts: Parts, dead_letters: DeadLetterService) -> None:
    (job,) = await buried(parts)
    (dead,) = await parts.crank.all_of(job)
    view = await dead_letters.retry(ANN, dead.id)
    assert (view.retry_of, view.state, view.cause) == (dead.id, "PENDING", "RETRY_OF")
    assert (await dead_letters.list_dead_letters(ANN, ALL)).dead_letters == ()


async def test_dead_letter_is_retried_once(parts: Parts, dead_letters: DeadLetterService) -> None:
    (job,) = await buried(parts)
    (dead,) = await parts.crank.all_of(job)
    retried = await dead_letters.retry(ANN, dead.id)
    with pytest.raises(Conflict, match="already retried") as refused:
        await dead_letters.retry(ANN, dead.id)
    assert refused.value.context["retriedAs"] == retried.execution_id


async def test_retry_under_the_same_key_gets_the_first_response(parts: Parts, dead_letters: DeadLetterService) -> None:
    (job,) = await buried(parts)
    (dead,) = await parts.crank.all_of(job)
    await dead_letters.retry(ANN, dead.id, key())
    with pytest.raises(AlreadyAnswered):
        await dead_letters.retry(ANN, dead.id, key())
    assert len(await parts.crank.all_of(job)) == 2


async def test_execution_that_succeeded_is_no_dead_letter(parts: Parts, dead_letters: DeadLetterService) -> None:
    dispatch = await parts.fire(await parts.add())
    await parts.crank.settle(report(dispatch))
    with pytest.raises(Conflict, match="SUCCEEDED, not DEAD"):
        await dead_letters.retry(ANN, dispatch.execution_id)


async def test_unknown_execution_is_not_found(parts: Parts, dead_letters: DeadLetterService) -> None:
    (job,) = await buried(parts)
    (dead,) = await parts.crank.all_of(job)
    with pytest.raises(NotFound):
        await dead_letters.archive(STRANGER, dead.id)


async def test_archived_dead_letter_is_listed_only_on_request(parts: Parts, dead_letters: DeadLetterService) -> None:
    (job,) = await buried(parts)
    (dead,) = await parts.crank.all_of(job)
    assert (await dead_letters.archive(ANN, dead.id)).archived
    assert (await dead_letters.list_dead_letters(ANN, ALL)).dead_letters == ()
    (letter,) = (await dead_letters.list_dead_letters(ANN, DeadFilterQuery(archived=True))).dead_letters
    assert letter.archived


async def test_archived_dead_letter_can_still_be_retried(parts: Parts, dead_letters: DeadLetterService) -> None:
    (job,) = await buried(parts)
    (dead,) = await parts.crank.all_of(job)
    await dead_letters.archive(ANN, dead.id)
    assert (await dead_letters.retry(ANN, dead.id)).retry_of == dead.id


async def test_bulk_retry_takes_those_that_match(parts: Parts, dead_letters: DeadLetterService) -> None:
    jobs = await buried(parts, 3)
    view = await dead_letters.retry_where(ANN, DeadFilterQuery(job_id=jobs[0].id))
    assert (view.changed, view.more) == (1, False)
    assert len((await dead_letters.list_dead_letters(ANN, ALL)).dead_letters) == 2


async def test_bulk_archive_of_a_pool_takes_all_of_it(parts: Parts, dead_letters: DeadLetterService) -> None:
    await buried(parts, 3)
    assert (await dead_letters.archive_where(ANN, DeadFilterQuery(pool="elsewhere"))).changed == 0
    assert (await dead_letters.archive_where(ANN, DeadFilterQuery(pool=POOL))).changed == 3


async def test_bulk_retry_passes_over_dead_letters_of_cancelled_jobs(
    parts: Parts, dead_letters: DeadLetterService
) -> None:
    cancelled, usual = await buried(parts, 2)
    await parts.crank.change(cancelled, lambda before: edits.delete(before, NOW_MS + 1, audit()))
    assert (await dead_letters.retry_where(ANN, ALL)).changed == 1
    assert len(await parts.crank.all_of(usual)) == 2


async def test_bulk_request_under_the_same_key_changes_nothing_again(
    parts: Parts, dead_letters: DeadLetterService
) -> None:
    jobs = await buried(parts, 2)
    await dead_letters.retry_where(ANN, ALL, key())
    with pytest.raises(AlreadyAnswered):
        await dead_letters.retry_where(ANN, ALL, key())
    assert [len(await parts.crank.all_of(job)) for job in jobs] == [2, 2]
