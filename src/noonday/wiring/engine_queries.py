"""What an application asks of its own engine about jobs, executions, dead letters and alerts, and how it steers them."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Protocol, TypeVar

from msgspec import UNSET

from noonday.alerts.alert_service import AlertService
from noonday.api.instants import bounded_ms, span_ms
from noonday.intake.services import IntakeServices
from noonday.model.alert import AlertKind
from noonday.model.alert_view import AcknowledgeRequest, AlertList, AlertView
from noonday.model.caller import Caller
from noonday.model.errors import InvalidInput
from noonday.model.filters import DeadFilter, MoveRequest, RunRequest, dead_query
from noonday.model.ids import TenantId
from noonday.model.job import JobType
from noonday.model.view import (
    DeadLetterPage,
    DeadLetterView,
    ExecutionLogsView,
    ExecutionPage,
    ExecutionView,
    JobPage,
    JobView,
    OccurrencePage,
)
from noonday.ports.queries import QueryStore
from noonday.ports.settings import SettingsStore
from noonday.runtime.clock import SystemClock
from noonday.sdk.fields import either
from noonday.sdk.methods import Listing
from noonday.sdk.payload import to_builtins
from noonday.wiring.engine_thread import EngineLoop

T = TypeVar("T")
E = TypeVar("E", bound=Enum)

OWNER = Caller(TenantId("default"), "application", frozenset({"operator"}))
PAGE_ROWS = 50
MOST_ROWS = 500
"""Default and maximum number of rows of a page."""


class _Intake(Protocol):
    """The services of an engine."""

    @property
    def services(self) -> IntakeServices: ...
    @property
    def alerts(self) -> AlertService: ...


class _Store(Protocol):
    @property
    def query_store(self) -> QueryStore: ...
    @property
    def settings_store(self) -> SettingsStore: ...


class EngineAccess(Protocol):
    """Access to an embedded engine or to a cluster."""

    @property
    def engine(self) -> _Intake: ...
    @property
    def store(self) -> _Store: ...


@dataclass(frozen=True)
class ClusterAccess:
    """Access to a cluster through a process of its own."""

    engine: _Intake
    store: _Store


class EngineAlerts:
    """`running.alerts`: the alerts of an engine, as `client.alerts`."""

    def __init__(self, access: EngineAccess, thread: EngineLoop) -> None:
        self._alerts = access.engine.alerts
        self._thread = thread

    async def list(
        self,
        *,
        unread: bool | None = None,
        kind: AlertKind | str | None = None,
        task_id: str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> AlertList:
        """Return a page of the alerts that match all conditions, newest first. `task_id` is the id of any job."""
        most, chosen = _rows(limit), _member(AlertKind, kind, "/kind")
        return await self._thread.call(
            lambda: self._alerts.list_alerts(
                OWNER, unread=unread, kind=chosen, job_id=_lower(task_id), cursor=_lower(cursor), limit=most
            )
        )

    async def get(self, alert_id: str) -> AlertView:
        """Return an alert. Raises NotFound."""
        return await self._thread.call(lambda: self._alerts.get(OWNER, alert_id))

    async def acknowledge(self, alert_id: str) -> AlertView:
        """Acknowledge an alert. If its cause recurs, a new alert opens. Raises NotFound."""
        return await self._thread.call(lambda: self._alerts.acknowledge(OWNER, alert_id))

    async def acknowledge_all(
        self, *, kind: AlertKind | str | None = None, task_id: str | None = None, until: datetime | None = None
    ) -> int:
        """Acknowledge all alerts that match the conditions; without conditions, all. Returns their number."""
        if until is not None:
            bounded_ms(until, "/until")
        request = AcknowledgeRequest(kind=_member(AlertKind, kind, "/kind"), task_id=task_id, until=until)
        return (await self._thread.call(lambda: self._alerts.acknowledge_all(OWNER, request))).acknowledged


class EngineQueries:
    """Jobs, executions and dead letters of an engine, with the names that they have in `Client`."""

    def __init__(self, access: EngineAccess, thread: EngineLoop) -> None:
        self._access = access
        self._thread = thread
        self.alerts = EngineAlerts(access, thread)

    async def get_job(self, job_id: str) -> JobView:
        """Return a job with its latest executions. Raises NotFound."""
        return await self._ask(lambda intake: intake.job_queries.get_job(OWNER, job_id))

    def list_jobs(
        self,
        *,
        state: str | None = None,
        pool: str | None = None,
        handler: str | None = None,
        type: JobType | str | None = None,
        tag: str | None = None,
        name: str | None = None,
        unique_key: str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
        summary: bool = False,
    ) -> Listing[JobPage, JobView]:
        """List jobs that match all conditions, newest first. `limit` is the page size. A `summary` omits payloads."""
        most, kind = _rows(limit), _member(JobType, type, "/type")

        async def fetch(after: str | None) -> JobPage:
            return await self._ask(
                lambda intake: intake.job_queries.list_jobs(
                    OWNER,
                    state=state,
                    pool=pool,
                    handler=handler,
                    type=kind,
                    tag=tag,
                    name=name,
                    unique_key=unique_key,
                    cursor=after,
                    limit=most,
                    summary=summary,
                )
            )

        return Listing(fetch, lambda page: page.jobs, cursor)

    async def occurrences(
        self, job_id: str, from_: datetime | None = None, to: datetime | None = None, *, limit: int | None = None
    ) -> OccurrencePage:
        """Return a job's occurrences: decisions with reasons, and planned times. Defaults to one day before and after now."""
        from_ms, to_ms = span_ms(from_, to, SystemClock().now_ms())
        most = _rows(limit, MOST_ROWS)
        return await self._ask(
            lambda intake: intake.occurrences.list_occurrences(OWNER, job_id, from_ms=from_ms, to_ms=to_ms, limit=most)
        )

    async def trigger(self, job_id: str, *, payload: Any = UNSET, force: bool = False) -> ExecutionView:
        """Run a job now, in addition to its schedule, with its own payload or with the given one.

        Raises Conflict if an execution is open and `overlap` is SKIP, unless `force` is true.
        """
        plain = UNSET if payload is UNSET else to_builtins(payload)
        request = RunRequest(payload=plain, force=force)
        return await self._ask(lambda intake: intake.jobs.trigger(OWNER, job_id, request=request))

    async def pause(self, job_id: str, *, until: datetime | None = None) -> JobView:
        """Pause a job: it does not fire until it is resumed, at `until` if that is given.

        Raises NotFound, Conflict, and InvalidInput if `until` is not in the future.
        """
        until_ms = None if until is None else bounded_ms(until, "/until")
        return await self._ask(lambda intake: intake.jobs.pause(OWNER, job_id, until_ms=until_ms))

    async def move(self, job_id: str, at: datetime, to: datetime, *, reason: str | None = None) -> JobView:
        """Let the occurrence at an instant fire at another one. Raises NotFound, InvalidInput and Conflict."""
        bounded_ms(at, "/at")
        bounded_ms(to, "/to")
        request = MoveRequest(at=at, to=to, reason=reason)
        return await self._ask(lambda intake: intake.moves.move(OWNER, job_id, request))

    async def resume(self, job_id: str) -> JobView:
        """Resume a paused job. Raises NotFound, and Conflict."""
        return await self._ask(lambda intake: intake.jobs.resume(OWNER, job_id))

    async def delete(self, job_id: str) -> JobView:
        """Cancel a job: it does not fire again. Raises NotFound."""
        return await self._ask(lambda intake: intake.jobs.delete(OWNER, job_id))

    async def get_execution(self, execution_id: str) -> ExecutionView:
        """Return an execution, and what it waits for. Raises NotFound."""
        return await self._ask(lambda intake: intake.executions.get(OWNER, execution_id))

    async def get_execution_logs(self, execution_id: str) -> ExecutionLogsView:
        """Return what the handler of an execution has logged, by attempt. Raises NotFound."""
        return await self._ask(lambda intake: intake.executions.get_logs(OWNER, execution_id))

    def list_executions(
        self, job_id: str, *, state: str | None = None, cursor: str | None = None, limit: int | None = None
    ) -> Listing[ExecutionPage, ExecutionView]:
        """List the executions of a job, newest first: its history. `limit` is the page size."""
        most = _rows(limit)

        async def fetch(after: str | None) -> ExecutionPage:
            return await self._ask(
                lambda intake: intake.executions.list_executions(OWNER, job_id, state=state, cursor=after, limit=most)
            )

        return Listing(fetch, lambda page: page.executions, cursor)

    async def cancel(self, execution_id: str) -> ExecutionView:
        """Request cancellation: immediate if the execution has not started, else when its handler reacts."""
        return await self._ask(lambda intake: intake.executions.cancel(OWNER, execution_id))

    def dead_letters(
        self,
        where: DeadFilter | None = None,
        /,
        *,
        cursor: str | None = None,
        limit: int | None = None,
        **conditions: Any,
    ) -> Listing[DeadLetterPage, DeadLetterView]:
        """List dead letters that match a DeadFilter, or its fields by name: `dead_letters(pool="mail")`."""
        most, query = _rows(limit), dead_query(either(where, conditions, DeadFilter))

        async def fetch(after: str | None) -> DeadLetterPage:
            return await self._ask(
                lambda intake: intake.dead_letters.list_dead_letters(OWNER, query, cursor=after, limit=most)
            )

        return Listing(fetch, lambda page: page.dead_letters, cursor)

    async def retry_dead(self, execution_id: str) -> ExecutionView:
        """Retry a dead letter. Returns the new execution."""
        return await self._ask(lambda intake: intake.dead_letters.retry(OWNER, execution_id))

    async def archive_dead(self, execution_id: str) -> DeadLetterView:
        """Archive a dead letter. Lists show it only with `archived=True`."""
        return await self._ask(lambda intake: intake.dead_letters.archive(OWNER, execution_id))

    async def _ask(self, question: Callable[[IntakeServices], Coroutine[Any, Any, T]]) -> T:
        return await self._thread.call(lambda: question(self._access.engine.services))


def _rows(limit: int | None, default: int = PAGE_ROWS) -> int:
    if limit is None:
        return default
    if not 1 <= limit <= MOST_ROWS:
        raise InvalidInput.of("/limit", f"limit is {limit}: must be from 1 to {MOST_ROWS}", limit)
    return limit


def _member(kind: type[E], value: E | str | None, pointer: str) -> E | None:
    """Return a value of an enumeration. Raises InvalidInput."""
    try:
        return None if value is None else kind(value)
    except ValueError as unknown:
        allowed = [each.value for each in kind]
        detail = f"{pointer[1:]} is {value!r}: must be one of {', '.join(allowed)}"
        raise InvalidInput.of(pointer, detail, value, allowed=allowed) from unknown


def _lower(name: str | None) -> str | None:
    return None if name is None else name.lower()
