"""Queries of workers, and of the figures of the engine."""

from collections.abc import Callable
from typing import Any

from noonday.intake.scope import tenant_in_scope
from noonday.model.caller import Caller
from noonday.model.job import instant_of
from noonday.model.recent import overview_of
from noonday.model.rows import WorkerRow
from noonday.model.view import RunningView, WorkerView
from noonday.ports.clock import Clock
from noonday.ports.workload import DUE_LOOKED_AT, Workload

_UNKNOWN_FOR_ONE_TENANT = {"ratePerSec": None, "latenessMs": {"p50": None, "p95": None, "p99": None}}


class WorkerQueries:
    """Queries of workers and of the backlog."""

    def __init__(self, *, workload: Workload, clock: Clock, live: Callable[[], dict[str, Any]]) -> None:
        """`live` returns figures that only the running engine has."""
        self._workload = workload
        self._clock = clock
        self._live = live

    async def list_workers(self, caller: Caller) -> list[WorkerView]:
        """List the workers with the running executions of the caller's tenant. Only operators see hosts and processes."""
        return [_view(row, caller) for row in await self._workload.list_workers()]

    async def overview(self, caller: Caller, *, all_tenants: bool = False) -> dict[str, Any]:
        """Return figures of the caller's tenant, or of all tenants, which requires the scope operator.

        Rate and lateness are measured for the whole server only, so they are None for one tenant.
        """
        now_ms = self._clock.now_ms()
        counts = await self._workload.counts(now_ms, tenant_in_scope(caller, all_tenants))
        oldest = counts["oldest_due_ms"]
        figures = overview_of(await self._workload.figures(), now_ms) if all_tenants else _UNKNOWN_FOR_ONE_TENANT
        return {
            "due": counts["due"],
            "running": counts["running"],
            "queued": counts["queued"],
            "deadLetters": counts["dead"],
            "workers": counts["workers"],
            "oldestDueAgeMs": max(0, now_ms - oldest) if oldest else 0,
            "dueIsLeast": counts["due_looked_at"] >= DUE_LOOKED_AT,
            **figures,
            "tickAgeMs": None,
            **self._live(),
        }


def _view(row: WorkerRow, caller: Caller) -> WorkerView:
    mine = [e for e in row.running if e.tenant == caller.tenant]
    own = {e.id for e in mine}
    is_operator = caller.may("operator")
    return WorkerView(
        worker_id=row.id,
        host=row.host if is_operator else None,
        pid=row.pid if is_operator else None,
        pools=row.concurrency,
        started_at=instant_of(row.started_ms),
        last_seen_at=instant_of(row.seen_ms),
        state=row.state,
        running=tuple(
            RunningView(
                execution_id=e.id,
                job_id=e.job_id,
                handler=e.handler,
                started_at=instant_of(e.started_ms or e.due_ms),
            )
            for e in mine
        ),
        stuck=row.stuck if is_operator else tuple(each for each in row.stuck if each in own),
    )
