"""The store of bulk operations."""

import asyncio
from typing import Any

import msgspec
import pytest

from noonday.model.audit import AuditEntry
from noonday.model.errors import Conflict
from noonday.model.ids import TenantId
from noonday.model.operation import MOST_RUNNING, BulkOperation, OperationFilter, OperationKind, finished
from noonday.model.receipt import Receipt
from noonday.ports.operations import Operations
from tests.support.drivers import Store
from tests.support.factories import NOW_MS, TENANT, job_id

OTHER = TenantId("other")


@pytest.fixture
def operations(store: Store) -> Operations:
    return store.operations


def operation(tenant: TenantId = TENANT, next_ms: int = NOW_MS, **more: Any) -> BulkOperation:
    return BulkOperation(
        id=job_id(),
        tenant=tenant,
        kind=OperationKind.PAUSE_JOBS,
        filter=OperationFilter(tag="etl"),
        until_ms=NOW_MS,
        by="ann",
        created_ms=NOW_MS,
        sample_size=0,
        rate_per_sec=50,
        stop_above_percent=20,
        total=3,
        total_is_least=False,
        next_ms=next_ms,
        **more,
    )


def audit(of: BulkOperation, action: str = "operation.create") -> AuditEntry:
    return AuditEntry(of.tenant, NOW_MS, "ann", action, of.id)


async def added(operations: Operations, *every: BulkOperation) -> None:
    for each in every:
        assert await operations.add(each, MOST_RUNNING, audit(each))


async def test_an_operation_is_stored_with_its_audit(operations: Operations, store: Store) -> None:
    one = operation(position="p", batch=("a", "b"), recent=(3, 1), errors=("e",))
    await added(operations, one)
    assert await operations.find(TENANT, one.id) == one
    assert await operations.find(OTHER, one.id) is None
    assert await operations.find(TENANT, "nothing") is None
    ((_, entry),) = await store.settings_store.list_audit(TENANT, target=None, subject=None, after=None, limit=9)
    assert entry == audit(one)


async def test_a_tenant_has_no_more_running_operations_than_the_limit(operations: Operations) -> None:
    many = [operation() for _ in range(3)]
    admitted = await asyncio.gather(*(operations.add(each, 2, audit(each)) for each in many))
    assert sorted(admitted) == [False, True, True]
    of_another = operation(OTHER)
    assert await operations.add(of_another, 2, audit(of_another))
    first, _ = await operations.list_operations(TENANT, None, 9)
    assert await operations.replace(finished(first, NOW_MS))
    following = operation()
    assert await operations.add(following, 2, audit(following))


async def test_the_receipt_is_stored_with_the_operation_or_neither_is(operations: Operations, store: Store) -> None:
    first, second = operation(), operation()
    receipt = Receipt(TENANT, "k", "f", NOW_MS, 201, b"{}")
    assert await operations.add(first, MOST_RUNNING, audit(first), receipt)
    with pytest.raises(Conflict):
        await operations.add(second, MOST_RUNNING, audit(second), receipt)
    assert [each.id for each in await operations.list_operations(TENANT, None, 9)] == [first.id]
    assert await store.jobs.find_receipt(TENANT, "k") == receipt


async def test_operations_are_listed_newest_first_in_pages(operations: Operations) -> None:
    every = sorted((operation() for _ in range(3)), key=lambda each: each.id, reverse=True)
    await added(operations, *every, operation(OTHER))
    assert await operations.list_operations(TENANT, None, 2) == every[:2]
    assert await operations.list_operations(TENANT, every[1].id, 2) == every[2:]
    assert await operations.list_operations(TENANT, "no cursor", 2) == []


async def test_only_one_of_two_processes_goes_on_with_an_operation(operations: Operations, store: Store) -> None:
    one = operation()
    await added(operations, one)
    mine, others = (msgspec.structs.replace(one, position=name) for name in ("mine", "others"))
    assert sorted(await asyncio.gather(operations.replace(mine), operations.replace(others))) == [False, True]
    stored = await operations.find(TENANT, one.id)
    assert stored is not None
    assert (stored.version, stored.position in ("mine", "others")) == (2, True)
    assert not await operations.replace(one, audit(one, "operation.end"))
    assert await operations.replace(stored, audit(one, "operation.end"))
    entries = await store.settings_store.list_audit(TENANT, target=None, subject=None, after=None, limit=9)
    assert [entry.action for _, entry in entries] == ["operation.end", "operation.create"]


async def test_due_operations_are_those_that_run_and_one_of_each_tenant(operations: Operations) -> None:
    late, later = operation(next_ms=NOW_MS - 2), operation(next_ms=NOW_MS - 1)
    other, future = operation(OTHER, NOW_MS), operation(TenantId("third"), NOW_MS + 1)
    ended = operation(TenantId("fourth"), NOW_MS - 9)
    await added(operations, later, late, other, future, ended)
    assert await operations.replace(finished(ended, NOW_MS))
    assert await operations.due(NOW_MS, 9) == [late, other]
    assert await operations.due(NOW_MS, 1) == [late]
    assert await operations.next_due_ms() == NOW_MS - 2


async def test_operations_are_deleted_some_time_after_their_end(operations: Operations) -> None:
    old, fresh, running = operation(), operation(), operation()
    await added(operations, old, fresh, running)
    assert await operations.replace(finished(old, NOW_MS))
    assert await operations.replace(finished(fresh, NOW_MS + 10))
    assert await operations.prune(NOW_MS + 10, 9) == 1
    left = {each.id for each in await operations.list_operations(TENANT, None, 9)}
    assert left == {fresh.id, running.id}
    assert await operations.prune(NOW_MS + 11, 9) == 1
    assert await operations.next_due_ms() == NOW_MS
