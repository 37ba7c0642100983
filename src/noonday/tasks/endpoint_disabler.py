"""Endpoint disabler: disables endpoints that fail for days, and halts their tasks until a user enables the endpoint.

One small transaction marks the endpoint as disabled and writes an incident, which becomes an alert. Its tasks are halted
afterwards, one by one. After a crash the endpoint is still unsettled, and the next round continues. An endpoint stays unsettled
for some minutes even if no task is left, because another process may create a task before it learns of the change. Enabling works
the same way, and resumes only tasks that were halted for this reason.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

import structlog

from noonday.intake.audit import SYSTEM_SUBJECT
from noonday.intake.job_service import JobService
from noonday.model.audit import AuditEntry
from noonday.model.caller import Caller
from noonday.model.endpoint import DAY_MS, Condition, EndpointHealth, EndpointRow
from noonday.model.errors import Conflict, NotFound
from noonday.model.ids import JobId
from noonday.ports.endpoints import Endpoints

log = structlog.get_logger("noonday.endpoints")
ROUND_SEC = 60.0
"""Time between two rounds."""
HALT_PREFIX = "endpoint disabled: "
"""Prefix of the reason of tasks that were halted with their endpoint."""
UNSETTLED_MS = 120_000
"""Time for which a process may still create tasks because it has not learnt that the endpoint is disabled."""
UNUSED_MS = 90 * DAY_MS
"""Time without a call after which the health of an endpoint without settings is deleted."""
PAGE = 100
MAX_TASKS = 500
"""Maximum number of tasks halted or resumed in one round."""


class EndpointDisabler:
    """Disables failing endpoints, and halts or resumes their tasks. Several processes may run it; each step is idempotent."""

    def __init__(self, endpoints: Endpoints, job_service: JobService) -> None:
        self._endpoints = endpoints
        self._job_service = job_service

    async def run_once(self, now_ms: int) -> int:
        """Return the number of endpoints disabled and tasks halted or resumed. If it is positive, there may be more."""
        count = 0
        for row in await self._endpoints.failing_too_long(now_ms, PAGE):
            count += await self._disable(row, now_ms)
        for row, since_ms in await self._endpoints.unsettled(PAGE):
            count += await self._settle(row, since_ms, now_ms)
        await self._endpoints.forget(now_ms - UNUSED_MS, MAX_TASKS)
        return count

    async def apply_to_tasks(self, row: EndpointRow) -> int:
        """Halt the tasks of a disabled endpoint, or resume those of an enabled one.

        Returns their number. If it is positive, there may be more.
        """
        caller, key = Caller(row.tenant, SYSTEM_SUBJECT, frozenset()), row.key
        if row.health.status is Condition.DISABLED:
            reason = f"{HALT_PREFIX}{row.endpoint} {row.health.disabled_why}"
            return await self._each(
                partial(self._endpoints.tasks_to_halt, key), lambda job: self._job_service.halt(caller, job, reason)
            )
        to_resume = partial(self._endpoints.tasks_to_resume, key, HALT_PREFIX)
        return await self._each(to_resume, lambda job: self._job_service.resume(caller, job))

    async def _disable(self, row: EndpointRow, now_ms: int) -> bool:
        reason = _disable_reason(row.health, now_ms)
        audit = AuditEntry(row.tenant, now_ms, SYSTEM_SUBJECT, "endpoint.disable", row.endpoint, {"why": reason})
        since_ms = row.health.failing_since_ms
        is_disabled = await self._endpoints.disable(row.key, reason, now_ms, audit, failing_since_ms=since_ms)
        if is_disabled:
            log.warning("endpoint disabled", tenant=row.tenant, endpoint=row.endpoint, reason=reason)
        return is_disabled

    async def _settle(self, row: EndpointRow, since_ms: int, now_ms: int) -> int:
        count = await self.apply_to_tasks(row)
        if not count and now_ms - since_ms >= UNSETTLED_MS:
            await self._endpoints.settled(row.key, since_ms)
        return count

    async def _each(
        self,
        find: Callable[[JobId | None, int], Awaitable[list[JobId]]],
        act: Callable[[JobId], Awaitable[object]],
    ) -> int:
        count, after, page = 0, None, [JobId("")]
        while page and count < MAX_TASKS:
            page = await find(after, PAGE)
            for job in page:
                with suppress(NotFound, Conflict):  # the task is finished or deleted
                    await act(job)
                    count += 1
                after = job
        return count


def _disable_reason(health: EndpointHealth, now_ms: int) -> str:
    assert health.failing_since_ms is not None
    days = (now_ms - health.failing_since_ms) / DAY_MS
    return (
        f"has failed for {days:.1f} days: {health.failures} calls failed and none succeeded; "
        f"the last one: {health.last_error}"
    )
