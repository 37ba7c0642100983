"""Run bulk operations in the background, batch by batch.

A batch is stored before its first item is changed, and each change is stored with a receipt. So a process may die at any point:
another one repeats the batch, and the receipts tell it what is done. Several processes may run this loop; a version decides
which of them goes on with an operation.
"""

from collections.abc import Awaitable, Callable

import msgspec
import structlog

from noonday.intake.audit import audit_entry
from noonday.intake.operation_items import OperationItems
from noonday.model.audit import AuditEntry
from noonday.model.caller import Caller
from noonday.model.errors import NoondayError
from noonday.model.operation import (
    LEASE_MS,
    BulkOperation,
    OperationState,
    Results,
    batch_size,
    finished,
    with_ends,
    with_results,
)
from noonday.ports.clock import Clock
from noonday.ports.operations import Operations

log = structlog.get_logger("noonday.operations")
AT_ONCE = 20
"""Maximum number of operations, each of another tenant, that one round works on."""
PAGES = 20
"""Maximum number of pages without an item that one step examines."""
POLL_MS = 1_000
"""Time between two looks at the runs that an operation awaits."""
POSTPONED_MS = 5_000
"""Time after which a batch is repeated because the store or the signals were unavailable."""
ROUND_SEC = 1.0
TRIES = 8


class OperationRunner:
    """Works on operations that are due."""

    def __init__(self, operations: Operations, items: OperationItems, clock: Clock) -> None:
        self._operations = operations
        self._items = items
        self._clock = clock

    def wait(self) -> Callable[[], Awaitable[float]]:
        """Return the `wait` of a loop: until the next operation is due, a second at most."""

        async def until_due() -> float:
            next_ms = await self._operations.next_due_ms()
            if next_ms is None:
                return ROUND_SEC
            return min(ROUND_SEC, max(0.0, (next_ms - self._clock.now_ms()) / 1000))

        return until_due

    async def run_once(self, now_ms: int) -> int:
        """Take one step of each operation that is due. Returns the number of steps."""
        due = await self._operations.due(now_ms, AT_ONCE)
        for operation in due:
            try:
                await self._step(operation)
            except NoondayError as error:
                # The trouble of one operation does not keep the others waiting.
                log.warning("operation postponed", operation=operation.id, tenant=operation.tenant, error=error.detail)
                await self._postpone(operation)
        return len(due)

    async def _step(self, operation: BulkOperation) -> None:
        taken = await (self._take_again(operation) if operation.batch else self._take_next(operation))
        if taken is not None and taken.batch:
            await self._keep(taken, await self._items.change(taken))

    async def _take_again(self, operation: BulkOperation) -> BulkOperation | None:
        """Take the batch of a process that died. Returns None if another process was faster."""
        return await self._save(msgspec.structs.replace(operation, next_ms=self._clock.now_ms() + LEASE_MS))

    async def _take_next(self, operation: BulkOperation) -> BulkOperation | None:
        """Store the next batch, if it is time for one. Returns None if there is none, or if another process was faster."""
        now_ms = self._clock.now_ms()
        if operation.watched:
            operation = with_ends(operation, await self._items.ended_runs(operation), now_ms)
        if operation.state is not OperationState.RUNNING:
            return await self._save(operation)
        if operation.is_searched and not operation.is_sampling:
            return await self._save(finished(operation, now_ms))
        size = batch_size(operation)
        if operation.is_searched or not size:
            if operation.is_searched and not operation.watched:
                return await self._save(finished(operation, now_ms))
            return await self._save(msgspec.structs.replace(operation, next_ms=now_ms + POLL_MS))
        return await self._save(await self._with_batch(operation, size))

    async def _with_batch(self, operation: BulkOperation, size: int) -> BulkOperation:
        for _ in range(PAGES):
            page = await self._items.find(operation, size)
            batch = tuple(item.id for item in page.items)
            operation = msgspec.structs.replace(
                operation, position=page.next, is_searched=page.next is None, batch=batch
            )
            if batch or operation.is_searched:
                break
        now_ms = self._clock.now_ms()
        return msgspec.structs.replace(operation, next_ms=now_ms + LEASE_MS if operation.batch else now_ms)

    async def _keep(self, taken: BulkOperation, results: Results) -> None:
        """Store what became of a batch. A stop in the meantime stays, with these counts."""
        present: BulkOperation | None = taken
        for _ in range(TRIES):
            now_ms = self._clock.now_ms()
            if present is None or present.position != taken.position or present.counts != taken.counts:
                return
            changed = with_results(msgspec.structs.replace(present, batch=taken.batch), results, now_ms)
            if await self._save(changed):
                return
            present = await self._operations.find(taken.tenant, taken.id)

    async def _save(self, operation: BulkOperation) -> BulkOperation | None:
        """Store an operation, and the end of one in the audit log. Returns it with its version, or None."""
        audit = _audit(operation) if operation.ended_ms is not None else None
        if not await self._operations.replace(operation, audit):
            return None
        return msgspec.structs.replace(operation, version=operation.version + 1)

    async def _postpone(self, operation: BulkOperation) -> None:
        present = await self._operations.find(operation.tenant, operation.id)
        if present is not None and present.state is OperationState.RUNNING:
            await self._operations.replace(
                msgspec.structs.replace(present, next_ms=self._clock.now_ms() + POSTPONED_MS)
            )


def _audit(operation: BulkOperation) -> AuditEntry | None:
    """Return the audit entry of an operation that has ended by itself."""
    assert operation.ended_ms is not None
    counts = msgspec.to_builtins(operation.counts)
    detail = {"state": operation.state, "because": operation.stopped_because, **counts}
    caller = Caller(operation.tenant, operation.by, frozenset())
    return audit_entry(caller, "operation.end", operation.id, operation.ended_ms, detail)
