"""Bulk operations are previewed, started, listed and stopped."""

from typing import Any

import msgspec
import pytest

from noonday.intake.idempotency import AlreadyAnswered
from noonday.intake.operation_service import COUNTED
from noonday.model.errors import Conflict, InvalidInput, NotFound
from noonday.model.job import JobSpec, JobType, Target
from noonday.model.operation import MOST_RUNNING, OperationFilter, OperationKind, OperationRequest
from tests.api.engine import Backstage
from tests.intake.parts import ANN, STRANGER, key

PAUSE = OperationRequest(kind=OperationKind.PAUSE_JOBS, filter=OperationFilter())


async def created(backstage: Backstage, count: int, **fields: Any) -> list[str]:
    spec = JobSpec(type=JobType.CRON, target=Target("demo", "demo.echo"), schedule="0 0 * * *", **fields)
    return list(await backstage.services.jobs.create_ids(ANN, [spec] * count))


async def test_a_preview_shows_count_and_samples_and_stores_nothing(backstage: Backstage) -> None:
    newest_first = sorted(await created(backstage, 7, name="nightly"), reverse=True)
    request = msgspec.structs.replace(PAUSE, filter=OperationFilter(name="nightly"))
    preview = await backstage.services.operations.preview(ANN, request)
    assert (preview.affected.count, preview.affected.is_least) == (7, False)
    assert [(each.id, each.text) for each in preview.samples] == [(job, "nightly") for job in newest_first[:5]]
    assert (preview.kind, preview.filter) == ("PAUSE_JOBS", {"name": "nightly"})
    assert (await backstage.services.operations.list_operations(ANN)).operations == ()


@pytest.mark.slow
async def test_a_preview_counts_no_more_than_its_limit(backstage: Backstage) -> None:
    await created(backstage, COUNTED + 1)
    affected = (await backstage.services.operations.preview(ANN, PAUSE)).affected
    assert (affected.count, affected.is_least) == (COUNTED, True)
    started = await backstage.services.operations.create(ANN, PAUSE)
    assert (started.total, started.total_is_least, started.left) == (COUNTED, True, None)


async def test_an_operation_with_the_instant_of_its_preview_leaves_newer_items_out(backstage: Backstage) -> None:
    await created(backstage, 2)
    preview = await backstage.services.operations.preview(ANN, PAUSE)
    earlier = msgspec.structs.replace(PAUSE, until=preview.until.replace(year=2001))
    assert (await backstage.services.operations.create(ANN, earlier)).total == 0
    assert (
        await backstage.services.operations.create(ANN, msgspec.structs.replace(PAUSE, until=preview.until))
    ).total == 2


async def test_a_repeated_request_starts_one_operation(backstage: Backstage) -> None:
    started = await backstage.services.operations.create(ANN, PAUSE, key())
    with pytest.raises(AlreadyAnswered) as answered:
        await backstage.services.operations.create(ANN, PAUSE, key())
    assert msgspec.json.decode(answered.value.body)["id"] == started.id
    assert len((await backstage.services.operations.list_operations(ANN)).operations) == 1


async def test_a_tenant_has_a_limited_number_of_running_operations(backstage: Backstage) -> None:
    operations = backstage.services.operations
    started = [await operations.create(ANN, PAUSE) for _ in range(MOST_RUNNING)]
    with pytest.raises(Conflict, match="the tenant has 5 running operations"):
        await operations.create(ANN, PAUSE)
    await operations.create(STRANGER, PAUSE)
    await operations.stop(ANN, started[0].id)
    await operations.create(ANN, PAUSE)


async def test_operations_of_another_tenant_are_not_found(backstage: Backstage) -> None:
    operations = backstage.services.operations
    started = await operations.create(ANN, PAUSE)
    for ask in (operations.get, operations.stop):
        with pytest.raises(NotFound, match=f"no operation {started.id}"):
            await ask(STRANGER, started.id)
    assert (await operations.list_operations(STRANGER)).operations == ()


async def test_operations_are_listed_in_pages(backstage: Backstage) -> None:
    operations = backstage.services.operations
    started = sorted([(await operations.create(ANN, PAUSE)).id for _ in range(3)], reverse=True)
    first = await operations.list_operations(ANN, limit=2)
    rest = await operations.list_operations(ANN, limit=2, cursor=first.next)
    assert [each.id for each in (*first.operations, *rest.operations)] == started
    assert rest.next is None
    with pytest.raises(InvalidInput, match="not a cursor of this list"):
        await operations.list_operations(ANN, cursor="x")


async def test_a_condition_of_another_kind_is_refused(backstage: Backstage) -> None:
    request = msgspec.structs.replace(PAUSE, filter=OperationFilter(worker="w-1"))
    for ask in (backstage.services.operations.preview, backstage.services.operations.create):
        with pytest.raises(InvalidInput, match="PAUSE_JOBS has no condition worker; it has handler, name, pool"):
            await ask(ANN, request)
