"""Operation service: previews, starts, lists and stops bulk operations."""

from collections.abc import Callable

import msgspec

from noonday.intake.audit import audit_entry
from noonday.intake.idempotency import Idempotency
from noonday.intake.operation_items import OperationItem, OperationItems
from noonday.intake.receipts import Receipts
from noonday.model.caller import Caller
from noonday.model.errors import Conflict, InvalidInput, NotFound
from noonday.model.ids import is_id, new_job_id
from noonday.model.job import instant_of
from noonday.model.operation import (
    MOST_RUNNING,
    BulkOperation,
    OperationRequest,
    OperationState,
    check,
    conditions,
    planned,
    stopped,
)
from noonday.model.operation_view import AffectedView, OperationPage, OperationPreview, OperationView, SampleView
from noonday.ports.clock import Clock
from noonday.ports.operations import Operations

COUNTED = 1_000
"""Maximum number of items that a preview counts."""
COUNTED_PAGES = 5
"""Maximum number of pages that a preview examines."""
SAMPLES = 5
TRIES = 8


class OperationService:
    """Commands and queries of bulk operations. The operations themselves run in the background."""

    def __init__(
        self,
        operations: Operations,
        items: OperationItems,
        receipts: Receipts,
        clock: Clock,
        new_id: Callable[[], str] = new_job_id,
    ) -> None:
        self._operations = operations
        self._items = items
        self._receipts = receipts
        self._clock = clock
        self._new_id = new_id

    async def preview(self, caller: Caller, request: OperationRequest) -> OperationPreview:
        """Return how many items an operation would change, and some of them. Stores nothing."""
        check(request)
        operation = self._planned(caller, request)
        items, is_least = await self._count(operation)
        samples = tuple(SampleView(id=item.id, text=item.text) for item in items[:SAMPLES])
        return OperationPreview(
            kind=operation.kind,
            filter=conditions(operation.filter),
            until=instant_of(operation.until_ms),
            affected=AffectedView(count=len(items), is_least=is_least),
            samples=samples,
        )

    async def create(self, caller: Caller, request: OperationRequest, idem: Idempotency | None = None) -> OperationView:
        """Start an operation. Raises InvalidInput, and Conflict if too many operations of the tenant run."""
        check(request)
        async with self._receipts.once(caller, idem):
            operation = self._planned(caller, request)
            items, is_least = await self._count(operation)
            operation = msgspec.structs.replace(operation, total=len(items), total_is_least=is_least)
            view, now_ms = operation_view(operation), self._clock.now_ms()
            detail = {"kind": operation.kind, "filter": conditions(operation.filter), "total": operation.total}
            audit = audit_entry(caller, "operation.create", operation.id, now_ms, detail)
            receipt = self._receipts.of(caller, idem, now_ms, view) if idem else None
            if not await self._operations.add(operation, MOST_RUNNING, audit, receipt):
                raise Conflict(
                    f"the tenant has {MOST_RUNNING} running operations, which is the limit: stop one, or wait for its end",
                    limit=MOST_RUNNING,
                )
            return view

    async def get(self, caller: Caller, operation_id: str) -> OperationView:
        """Return an operation. Raises NotFound."""
        return operation_view(await self._get(caller, operation_id))

    async def list_operations(self, caller: Caller, *, cursor: str | None = None, limit: int = 50) -> OperationPage:
        """List operations, newest first. Raises InvalidInput for a malformed cursor."""
        if cursor is not None and not is_id(cursor):
            raise InvalidInput.of("/cursor", "not a cursor of this list: use `next` of its previous page", cursor)
        found = await self._operations.list_operations(caller.tenant, cursor, limit + 1)
        views = tuple(operation_view(each) for each in found[:limit])
        return OperationPage(operations=views, next=views[-1].id if len(found) > limit else None)

    async def stop(self, caller: Caller, operation_id: str, idem: Idempotency | None = None) -> OperationView:
        """Stop an operation. The batch in progress is completed. One that has ended stays as it is. Raises NotFound."""
        async with self._receipts.once(caller, idem):
            for _ in range(TRIES):
                operation = await self._get(caller, operation_id)
                if operation.state is not OperationState.RUNNING:
                    return await self._receipts.keep(caller, idem, operation_view(operation))
                now_ms = self._clock.now_ms()
                ended = stopped(operation, f"stopped by {caller.subject}", now_ms)
                view = operation_view(ended)
                audit = audit_entry(caller, "operation.stop", operation_id, now_ms)
                receipt = self._receipts.of(caller, idem, now_ms, view) if idem else None
                if await self._operations.replace(ended, audit, receipt):
                    return view
        raise Conflict(f"the operation changed {TRIES} times while it was being stopped; repeat the request")

    async def _get(self, caller: Caller, operation_id: str) -> BulkOperation:
        operation = await self._operations.find(caller.tenant, operation_id)
        if operation is None:
            raise NotFound(f"no operation {operation_id}", operationId=operation_id)
        return operation

    def _planned(self, caller: Caller, request: OperationRequest) -> BulkOperation:
        now_ms = self._clock.now_ms()
        return planned(request, self._new_id(), caller.tenant, caller.subject, now_ms, 0, is_least=False)

    async def _count(self, operation: BulkOperation) -> tuple[list[OperationItem], bool]:
        """Return the first items of an operation, and whether there may be more."""
        items = list[OperationItem]()
        for _ in range(COUNTED_PAGES):
            page = await self._items.find(operation, COUNTED - len(items))
            items += page.items
            if page.next is None:
                return items, False
            if len(items) >= COUNTED:
                break
            operation = msgspec.structs.replace(operation, position=page.next)
        return items, True


def operation_view(operation: BulkOperation) -> OperationView:
    counts = operation.counts
    return OperationView(
        id=operation.id,
        kind=operation.kind,
        filter=conditions(operation.filter),
        until=instant_of(operation.until_ms),
        state=operation.state,
        total=operation.total,
        total_is_least=operation.total_is_least,
        done=counts.done,
        skipped=counts.skipped,
        failed=counts.failed,
        left=None if operation.total_is_least else max(0, operation.total - counts.changed),
        runs_ended=counts.runs_ended,
        runs_failed=counts.runs_failed,
        sample_size=operation.sample_size,
        rate_per_sec=operation.rate_per_sec,
        stop_above_percent=operation.stop_above_percent,
        stopped_because=operation.stopped_because,
        errors=operation.errors,
        by=operation.by,
        created_at=instant_of(operation.created_ms),
        ended_at=None if operation.ended_ms is None else instant_of(operation.ended_ms),
    )
