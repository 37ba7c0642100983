"""Asynchronous HTTP client of the API."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import Any, Generic, Self, TypeVar

import msgspec

from noonday.model.errors import ExecutionFailed, InvalidInput, NoondayError
from noonday.model.execution import FINAL
from noonday.model.filters import DeadFilter, PreviewRequest
from noonday.model.job import JobSpec, JobType
from noonday.model.view import (
    AuditPage,
    AuditView,
    BackfillView,
    BulkView,
    DeadLetterPage,
    DeadLetterView,
    ExecutionPage,
    ExecutionView,
    JobPage,
    JobView,
    OccurrencePage,
    Page,
    PauseList,
    PauseView,
    PoolSettings,
    PoolView,
    Preview,
    TenantSettings,
    TenantView,
    UsageView,
    WorkerView,
)
from noonday.sdk.alert_preferences import AlertPreferencesClient
from noonday.sdk.alerts import AlertsClient
from noonday.sdk.endpoints import EndpointsClient
from noonday.sdk.payload import decoder_of
from noonday.sdk.problems import ClientClosed, Problem, ServerUnreachable, is_problem, problem_of
from noonday.sdk.secrets import SecretsClient
from noonday.sdk.spec import Duration, seconds_of, spec_of
from noonday.sdk.tasks import TasksClient
from noonday.sdk.transport import Transport, decoded, path_of

__all__ = ["Client", "ClientClosed", "Listing", "Problem", "ResultTimeout", "ServerUnreachable"]

BATCH_JOBS = 10_000
BATCH_BYTES = 32 * 1024 * 1024
FIRST_POLL_SEC = 0.05
LAST_POLL_SEC = 1.0
_ENDED = frozenset(state.name for state in FINAL)

T = TypeVar("T")
PageT = TypeVar("PageT", bound=Page)


class ResultTimeout(NoondayError, TimeoutError):
    """The timeout of `result()` passed. The execution continues."""

    code = "result-timeout"


class Listing(Generic[PageT, T]):
    """A paged list: `async for page in listing`, or `async for item in listing.items()`."""

    def __init__(
        self, fetch: Callable[[str | None], Awaitable[PageT]], items: Callable[[PageT], Sequence[T]], cursor: str | None
    ) -> None:
        self._fetch = fetch
        self._items = items
        self._cursor = cursor

    async def __aiter__(self) -> AsyncIterator[PageT]:
        page = await self._fetch(self._cursor)
        yield page
        while page.next is not None:
            page = await self._fetch(page.next)
            yield page

    async def items(self) -> AsyncIterator[T]:
        async for page in self:
            for item in self._items(page):
                yield item


class Client:
    """Client of a Noonday server: `async with Client(url, token) as client`.

    A problem response raises the class of `noonday.model.errors` with the problem's code. If a connection fails, the client
    retries the request up to 3 times, then raises ServerUnreachable. Every change has an Idempotency-Key, so the server applies
    it once even if the request is repeated. A request takes at most `timeout` seconds.

    `tasks` schedules webhook calls, `secrets` manages their signing secrets, and `endpoints` the limits of the URLs they call.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: Duration = 30,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._http = Transport(url, token, seconds_of(timeout, "/timeout"), sleep)
        self.tasks = TasksClient(self._http)
        self.secrets = SecretsClient(self._http)
        self.alert_preferences = AlertPreferencesClient(self._http)
        self.endpoints = EndpointsClient(self._http)
        self.alerts = AlertsClient(self._http)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections. Further requests raise ClientClosed."""
        await self._http.close()

    # Jobs

    async def create(
        self, spec: JobSpec | None = None, /, *, idempotency_key: str | None = None, **fields: Any
    ) -> JobView:
        """Create a job from a JobSpec, or from its fields by name: `create(type="CRON", target=..., schedule=...)`."""
        job = _either(spec, fields, spec_of)
        return await self._http.change(JobView, "POST", "/v1/jobs", job, key=idempotency_key)

    async def create_many(self, specs: Iterable[JobSpec], *, atomic: bool = False) -> list[JobView | Problem]:
        """Create many jobs. Returns a job or a problem for each, in the same order.

        The client sends several batches if one request would be too large; each batch is one transaction. If a later batch
        fails, `answered` in the error's context has the results of the batches before it. With `atomic`, all jobs are stored or
        none, and the error has every flaw; this needs a single batch (at most 10,000 jobs).
        """
        if atomic:
            specs = list(specs)
            if len(specs) > BATCH_JOBS:
                raise InvalidInput(f"{len(specs)} jobs cannot be created atomically; send at most {BATCH_JOBS}")
        answered: list[JobView | Problem] = []
        for batch in _batches(specs, None if atomic else BATCH_BYTES):
            try:
                answered += await self._create_batch(batch, atomic)
            except NoondayError as bad:
                bad.context["answered"] = answered
                raise
        return answered

    async def get_job(self, job_id: str, *, executions: int | None = None) -> JobView:
        """Return a job with its latest executions (`executions` is their number). Raises NotFound."""
        return await self._http.get(JobView, path_of("jobs", job_id), {"executions": executions})

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
        """List jobs that match all conditions. `limit` is the page size. A `summary` omits payloads."""
        query = {
            "view": "summary" if summary else None,
            "state": state,
            "pool": pool,
            "handler": handler,
            "type": type,
            "tag": tag,
            "name": name,
            "uniqueKey": unique_key,
            "limit": limit,
        }
        return self._list(JobPage, lambda page: page.jobs, "/v1/jobs", query, cursor)

    async def replace(self, job_id: str, spec: JobSpec, *, if_version: int | None = None) -> JobView:
        """Replace the whole definition of a job. Raises VersionMismatch if its version is not `if_version`."""
        headers = {} if if_version is None else {"If-Match": f'"{if_version}"'}
        return await self._http.change(JobView, "PUT", path_of("jobs", job_id), spec, headers=headers)

    async def pause(self, job_id: str) -> JobView:
        return await self._http.change(JobView, "POST", path_of("jobs", job_id, "pause"))

    async def resume(self, job_id: str) -> JobView:
        return await self._http.change(JobView, "POST", path_of("jobs", job_id, "resume"))

    async def delete(self, job_id: str) -> JobView:
        return await self._http.change(JobView, "DELETE", path_of("jobs", job_id))

    async def trigger(self, job_id: str, *, idempotency_key: str | None = None) -> ExecutionView:
        """Run a job now, in addition to its schedule. Raises Conflict if an execution is open and `overlap` is SKIP."""
        return await self._http.change(ExecutionView, "POST", path_of("jobs", job_id, "trigger"), key=idempotency_key)

    async def backfill(
        self, job_id: str, from_: datetime, to: datetime, *, backfill_id: str | None = None, preview: bool = False
    ) -> BackfillView:
        """Run the occurrences of a past range, in pages. Repeat until `created` is 0.

        A repeated backfill with the same id creates only missing executions. The id defaults to the range.
        """
        body: dict[str, Any] = {"from": from_, "to": to, "preview": preview}
        if backfill_id is not None:
            body["backfillId"] = backfill_id
        return await self._http.change(BackfillView, "POST", path_of("jobs", job_id, "backfill"), body)

    async def occurrences(
        self, job_id: str, from_: datetime | None = None, to: datetime | None = None, *, limit: int | None = None
    ) -> OccurrencePage:
        """Return a job's occurrences: decisions with reasons, and planned times."""
        query = {"from": from_, "to": to, "limit": limit}
        return await self._http.get(OccurrencePage, path_of("jobs", job_id, "occurrences"), query)

    async def preview(self, request: PreviewRequest | None = None, /, **fields: Any) -> Preview:
        """Preview the next fire times of a schedule: `preview(schedule="0 3 * * *", timezone="Europe/Oslo")`."""
        body = _either(request, fields, PreviewRequest)
        return await self._http.ask(Preview, "POST", "/v1/schedules/preview", body)

    # Executions

    async def get_execution(self, execution_id: str) -> ExecutionView:
        return await self._http.get(ExecutionView, path_of("executions", execution_id))

    def list_executions(
        self, job_id: str, *, state: str | None = None, cursor: str | None = None, limit: int | None = None
    ) -> Listing[ExecutionPage, ExecutionView]:
        query = {"state": state, "limit": limit}
        return self._list(
            ExecutionPage, lambda page: page.executions, path_of("jobs", job_id, "executions"), query, cursor
        )

    async def cancel(self, execution_id: str) -> ExecutionView:
        """Request cancellation: immediate if the execution has not started, else when its handler reacts."""
        return await self._http.change(ExecutionView, "POST", path_of("executions", execution_id, "cancel"))

    async def result(self, of: str | ExecutionView | JobView, timeout: Duration | None = None, type: Any = Any) -> Any:
        """Wait for an execution to end, and return its handler's result as a value of `type`.

        `of` is an execution, a job, or the id of either. A job stands for its latest execution; if it has none yet, the client
        waits for the first. Raises ExecutionFailed if the execution did not succeed, and ResultTimeout after `timeout`.
        """
        seconds = None if timeout is None else seconds_of(timeout, "/timeout")
        try:
            async with asyncio.timeout(seconds):
                ended = await self._ended(of)
        except TimeoutError as late:
            raise ResultTimeout(f"{_id_of(of)} has not ended within {seconds:g} s") from late
        if ended.state != "SUCCEEDED":
            raise _failure(ended)
        return decoder_of(type, "result")(msgspec.json.encode(ended.result))

    # Dead letters

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
        query = {**_members(_either(where, conditions, DeadFilter)), "limit": limit}
        return self._list(DeadLetterPage, lambda page: page.dead_letters, "/v1/dead-letters", query, cursor)

    async def retry_dead(self, execution_id: str) -> ExecutionView:
        """Retry a dead letter. Returns the new execution."""
        return await self._http.change(ExecutionView, "POST", path_of("dead-letters", execution_id, "retry"))

    async def archive_dead(self, execution_id: str) -> DeadLetterView:
        return await self._http.change(DeadLetterView, "POST", path_of("dead-letters", execution_id, "archive"))

    async def retry_dead_where(self, where: DeadFilter | None = None, /, **conditions: Any) -> BulkView:
        """Retry up to 1,000 dead letters that match the filter. `more` is true if some are left."""
        filters = _either(where, conditions, DeadFilter)
        return await self._http.change(BulkView, "POST", "/v1/dead-letters/retry", filters)

    async def archive_dead_where(self, where: DeadFilter | None = None, /, **conditions: Any) -> BulkView:
        filters = _either(where, conditions, DeadFilter)
        return await self._http.change(BulkView, "POST", "/v1/dead-letters/archive", filters)

    # The server

    async def pools(self, *, all_tenants: bool = False) -> list[PoolView]:
        """Return the pools with the tenant's backlog, or with that of all tenants (needs scope operator)."""
        return (await self._http.get(_Pools, "/v1/pools", _scope_query(all_tenants))).pools

    async def get_pool(self, name: str) -> PoolView:
        return await self._http.get(PoolView, path_of("pools", name))

    async def put_pool(self, name: str, settings: PoolSettings) -> PoolView:
        return await self._http.change(PoolView, "PUT", path_of("pools", name), settings)

    async def workers(self) -> list[WorkerView]:
        return (await self._http.get(_Workers, "/v1/workers")).workers

    def audit(
        self,
        *,
        target: str | None = None,
        subject: str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> Listing[AuditPage, AuditView]:
        """List changes and who made them, newest first. Needs scope admin."""
        query = {"target": target, "subject": subject, "limit": limit}
        return self._list(AuditPage, lambda page: page.entries, "/v1/audit", query, cursor)

    async def pauses(self) -> tuple[PauseView, ...]:
        """Return the pauses of tenants, of pools, and of everything."""
        return (await self._http.get(PauseList, "/v1/pauses")).pauses

    async def pause_pool(self, name: str) -> tuple[PauseView, ...]:
        """Pause a pool: its due jobs wait, new jobs are still accepted. Needs scope operator. Returns all pauses."""
        return await self._change_pauses("pools", name, "pause")

    async def pause_tenant(self, tenant: str) -> tuple[PauseView, ...]:
        """Pause a tenant, as `pause_pool`. Needs scope admin for the caller's own tenant, else operator."""
        return await self._change_pauses("tenants", tenant, "pause")

    async def pause_all(self) -> tuple[PauseView, ...]:
        """Pause everything, as `pause_pool`. Needs scope operator."""
        return await self._change_pauses("pause")

    async def resume_pool(self, name: str) -> tuple[PauseView, ...]:
        """Resume a pool. Due work starts as capacity allows. Needs the same scope as its pause. Returns all pauses."""
        return await self._change_pauses("pools", name, "resume")

    async def resume_tenant(self, tenant: str) -> tuple[PauseView, ...]:
        return await self._change_pauses("tenants", tenant, "resume")

    async def resume_all(self) -> tuple[PauseView, ...]:
        """Resume after `pause_all`. Pauses of pools and tenants remain."""
        return await self._change_pauses("resume")

    async def _change_pauses(self, *path: str) -> tuple[PauseView, ...]:
        return (await self._http.change(PauseList, "POST", path_of(*path))).pauses

    async def get_tenant(self, tenant: str) -> TenantView:
        return await self._http.get(TenantView, path_of("tenants", tenant))

    async def put_tenant(self, tenant: str, settings: TenantSettings) -> TenantView:
        return await self._http.change(TenantView, "PUT", path_of("tenants", tenant), settings)

    async def usage(self, tenant: str, from_: date | None = None, to: date | None = None) -> UsageView:
        """Return the daily usage of a tenant (UTC). Both days are inclusive; the default is the last 30 days."""
        return await self._http.get(UsageView, path_of("tenants", tenant, "usage"), {"from": from_, "to": to})

    async def overview(self, *, all_tenants: bool = False) -> dict[str, Any]:
        """Return the tenant's backlog, or that of all tenants with rate and lateness (needs scope operator)."""
        return await self._http.get(dict[str, Any], "/v1/overview", _scope_query(all_tenants))

    async def proof(self, nonce: str) -> str:
        """Return the server's proof for a nonce. Raises NotFound if it has no shared secret."""
        return (await self._http.get(dict[str, str], "/proof", {"nonce": nonce})).get("proof", "")

    async def health(self) -> dict[str, Any]:
        """Return the health of the server. Raises ServerUnreachable if it does not respond."""
        return await self._http.get(dict[str, Any], "/healthz")

    # Requests

    async def _create_batch(self, batch: list[bytes], atomic: bool) -> list[JobView | Problem]:
        path = "/v1/jobs/batch" + ("?atomic=true" if atomic else "")
        response = await self._http.change(
            _BatchResponse, "POST", path, msgspec.Raw(b'{"jobs":[' + b",".join(batch) + b"]}")
        )
        return [_job_or_problem(raw) for raw in response.jobs]

    async def _ended(self, of: str | ExecutionView | JobView) -> ExecutionView:
        waits = _poll_waits()
        execution_id = await self._first_execution(_id_of(of), waits) if _is_job(of) else _id_of(of)
        while True:
            execution = await self.get_execution(execution_id)
            if execution.state in _ENDED:
                return execution
            await self._http.sleep(next(waits))

    async def _first_execution(self, job_id: str, waits: Iterator[float]) -> str:
        while True:
            job = await self.get_job(job_id)
            if job.executions:
                return job.executions[0].execution_id
            if job.state in ("COMPLETED", "CANCELLED"):
                raise ExecutionFailed(
                    f"job {job_id} is {job.state} without an execution", job_id=job_id, state=job.state
                )
            await self._http.sleep(next(waits))

    def _list(
        self,
        kind: type[PageT],
        items: Callable[[PageT], Sequence[T]],
        path: str,
        query: Mapping[str, Any],
        cursor: str | None,
    ) -> Listing[PageT, T]:
        async def fetch(cursor: str | None) -> PageT:
            return await self._http.get(kind, path, {**query, "cursor": cursor})

        return Listing(fetch, items, cursor)


class _Pools(msgspec.Struct):
    pools: list[PoolView]


def _scope_query(all_tenants: bool) -> dict[str, Any]:
    return {"scope": "all"} if all_tenants else {}


class _Workers(msgspec.Struct):
    workers: list[WorkerView]


class _BatchResponse(msgspec.Struct):
    jobs: list[msgspec.Raw]


def _either(given: T | None, fields: dict[str, Any], make: Callable[..., T]) -> T:
    if given is None:
        return make(**fields)
    if fields:
        raise InvalidInput(f"pass either a whole {type(given).__name__} or its fields, not both")
    return given


def _batches(specs: Iterable[JobSpec], most_bytes: int | None) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    size = 0
    for spec in specs:
        encoded = msgspec.json.encode(spec)
        size += len(encoded) + 1
        if len(batch) == BATCH_JOBS or (batch and most_bytes and size > most_bytes):
            yield batch
            batch, size = [], len(encoded) + 1
        batch.append(encoded)
    if batch:
        yield batch


def _job_or_problem(raw: msgspec.Raw) -> JobView | Problem:
    members = decoded(dict[str, Any], raw, "/v1/jobs/batch")
    return problem_of(members) if is_problem(members) else decoded(JobView, raw, "/v1/jobs/batch")


def _poll_waits() -> Iterator[float]:
    wait = FIRST_POLL_SEC
    while True:
        yield wait
        wait = min(2 * wait, LAST_POLL_SEC)


def _id_of(of: str | ExecutionView | JobView) -> str:
    if isinstance(of, str):
        return of
    return of.job_id if isinstance(of, JobView) else of.execution_id


def _is_job(of: str | ExecutionView | JobView) -> bool:
    """Return whether `of` is a job. Ids of jobs are UUIDs of version 7, ids of executions of version 8."""
    if not isinstance(of, str):
        return isinstance(of, JobView)
    try:
        return uuid.UUID(of).version == 7
    except ValueError:
        return False


def _failure(ended: ExecutionView) -> ExecutionFailed:
    reason = f": {ended.error.type}: {ended.error.message}" if ended.error else ""
    return ExecutionFailed(
        f"execution {ended.execution_id} is {ended.state} after attempt {ended.attempt}{reason}",
        execution_id=ended.execution_id,
        state=ended.state,
        attempt=ended.attempt,
        error=msgspec.to_builtins(ended.error),
    )


def _members(value: msgspec.Struct) -> dict[str, Any]:
    members: dict[str, Any] = msgspec.to_builtins(value)
    return members
