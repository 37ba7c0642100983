"""The HTTP client: what can be asked of a server."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import Any, Generic, Self, TypeVar

import msgspec

from noonday.intake.filters import DeadFilter, PreviewRequest
from noonday.model.errors import ExecutionFailed, InvalidInput, NoondayError
from noonday.model.execution import FINAL
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
from noonday.sdk.alert_preferences import AlertPreferences
from noonday.sdk.alerts import Alerts
from noonday.sdk.endpoints import Endpoints
from noonday.sdk.payload import decoder_of
from noonday.sdk.problems import Problem, is_problem, problem_of
from noonday.sdk.secrets import Secrets
from noonday.sdk.spec import Duration, seconds_of, spec_of
from noonday.sdk.tasks import Tasks
from noonday.sdk.transport import ClientClosed, ServerUnreachable, Transport, decoded, path_of

__all__ = ["Client", "ClientClosed", "Listing", "Problem", "ResultTimeout", "ServerUnreachable"]

BATCH_JOBS = 10_000
BATCH_BYTES = 32 * 1024 * 1024
FIRST_POLL_SEC = 0.05
LAST_POLL_SEC = 1.0
_ENDED = frozenset(state.name for state in FINAL)

T = TypeVar("T")
PageT = TypeVar("PageT", bound=Page)


class ResultTimeout(NoondayError, TimeoutError):
    """`result()` was told to wait no longer. The execution goes on."""

    code = "result-timeout"


class Listing(Generic[PageT, T]):
    """A list that the server gives out page by page: `async for page in it`, or `async for one in it.items()`."""

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
    """A Noonday server, seen from Python: `async with Client(url, token) as client`.

    Refusals of the server raise the class of `noonday.model.errors` that has the problem's code. When a connection
    fails, the request is sent again, a few times: whatever changes something carries an Idempotency-Key, so it is done
    once however often it arrives. Then ServerUnreachable is raised. No request takes longer than `timeout` seconds.

    Webhooks that are called on time are at `tasks`, what their calls are signed with at `secrets`, whom they call
    at `endpoints`.
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
        self.tasks = Tasks(self._http)
        self.secrets = Secrets(self._http)
        self.alert_preferences = AlertPreferences(self._http)
        self.endpoints = Endpoints(self._http)
        self.alerts = Alerts(self._http)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of all connections. Nothing can be asked afterwards."""
        await self._http.close()

    # Jobs

    async def create(
        self, spec: JobSpec | None = None, /, *, idempotency_key: str | None = None, **fields: Any
    ) -> JobView:
        """Create a job from a JobSpec, or from its fields by name: `create(type="CRON", target=..., schedule=...)`."""
        said = _either(spec, fields, spec_of)
        return await self._http.change(JobView, "POST", "/v1/jobs", said, key=idempotency_key)

    async def create_many(self, specs: Iterable[JobSpec], *, atomic: bool = False) -> list[JobView | Problem]:
        """Create many jobs, and say what became of each, in the same order.

        More than the server takes at a time are sent in several batches, each stored in one transaction. If a later
        batch fails, the error's context has under `answered` what became of those before it. With `atomic`, all are
        stored or none is and the error has every flaw; that goes for one batch only.
        """
        if atomic:
            specs = list(specs)
            if len(specs) > BATCH_JOBS:
                raise InvalidInput(f"at most {BATCH_JOBS} jobs can be created atomically, not {len(specs)}")
        answered: list[JobView | Problem] = []
        for batch in _batches(specs, None if atomic else BATCH_BYTES):
            try:
                answered += await self._create_batch(batch, atomic)
            except NoondayError as bad:
                bad.context["answered"] = answered
                raise
        return answered

    async def get_job(self, job_id: str, *, executions: int | None = None) -> JobView:
        """A job with so many of its latest executions. Raises NotFound."""
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
        """The jobs that meet every condition given; `limit` is the size of a page. A `summary` has no payloads."""
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
        """Replace a job's whole definition. Raises VersionMismatch if its version is not `if_version` any more."""
        headers = {} if if_version is None else {"If-Match": f'"{if_version}"'}
        return await self._http.change(JobView, "PUT", path_of("jobs", job_id), spec, headers=headers)

    async def pause(self, job_id: str) -> JobView:
        return await self._http.change(JobView, "POST", path_of("jobs", job_id, "pause"))

    async def resume(self, job_id: str) -> JobView:
        return await self._http.change(JobView, "POST", path_of("jobs", job_id, "resume"))

    async def delete(self, job_id: str) -> JobView:
        return await self._http.change(JobView, "DELETE", path_of("jobs", job_id))

    async def trigger(self, job_id: str, *, idempotency_key: str | None = None) -> ExecutionView:
        """Run a job now, besides its schedule. Raises Conflict if its overlap is SKIP and one is open."""
        return await self._http.change(ExecutionView, "POST", path_of("jobs", job_id, "trigger"), key=idempotency_key)

    async def backfill(
        self, job_id: str, from_: datetime, to: datetime, *, backfill_id: str | None = None, preview: bool = False
    ) -> BackfillView:
        """Run the occurrences of a past range, in pages: go on until `created` is 0.

        A backfill of the same id, which is made of the range by default, makes only what is not made yet.
        """
        body: dict[str, Any] = {"from": from_, "to": to, "preview": preview}
        if backfill_id is not None:
            body["backfillId"] = backfill_id
        return await self._http.change(BackfillView, "POST", path_of("jobs", job_id, "backfill"), body)

    async def occurrences(
        self, job_id: str, from_: datetime | None = None, to: datetime | None = None, *, limit: int | None = None
    ) -> OccurrencePage:
        """What became of a job's occurrences and why, and which are planned."""
        query = {"from": from_, "to": to, "limit": limit}
        return await self._http.get(OccurrencePage, path_of("jobs", job_id, "occurrences"), query)

    async def preview(self, request: PreviewRequest | None = None, /, **fields: Any) -> Preview:
        """The next times of a schedule, without a job: `preview(schedule="0 3 * * *", timezone="Europe/Oslo")`."""
        said = _either(request, fields, PreviewRequest)
        return await self._http.ask(Preview, "POST", "/v1/schedules/preview", said)

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
        """Ask for an execution to be cancelled: at once if it has not started, else as soon as its handler heeds it."""
        return await self._http.change(ExecutionView, "POST", path_of("executions", execution_id, "cancel"))

    async def result(self, of: str | ExecutionView | JobView, timeout: Duration | None = None, type: Any = Any) -> Any:
        """Wait for an execution to end, and return what its handler returned as a value of `type`.

        `of` is an execution, or a job, which stands for its latest execution, awaited if there is none yet; or the id
        of either. Raises ExecutionFailed if it ended otherwise, ResultTimeout if it has not ended in time.
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
        """The dead letters that meet a DeadFilter, or its conditions by name: `dead_letters(pool="mail")`."""
        query = {**_members(_either(where, conditions, DeadFilter)), "limit": limit}
        return self._list(DeadLetterPage, lambda page: page.dead_letters, "/v1/dead-letters", query, cursor)

    async def retry_dead(self, execution_id: str) -> ExecutionView:
        """Run a dead letter once more: as the execution that is returned."""
        return await self._http.change(ExecutionView, "POST", path_of("dead-letters", execution_id, "retry"))

    async def archive_dead(self, execution_id: str) -> DeadLetterView:
        return await self._http.change(DeadLetterView, "POST", path_of("dead-letters", execution_id, "archive"))

    async def retry_dead_where(self, where: DeadFilter | None = None, /, **conditions: Any) -> BulkView:
        """Retry the dead letters that meet the conditions, up to the server's limit; `more` says to go on."""
        said = _either(where, conditions, DeadFilter)
        return await self._http.change(BulkView, "POST", "/v1/dead-letters/retry", said)

    async def archive_dead_where(self, where: DeadFilter | None = None, /, **conditions: Any) -> BulkView:
        said = _either(where, conditions, DeadFilter)
        return await self._http.change(BulkView, "POST", "/v1/dead-letters/archive", said)

    # The server

    async def pools(self, *, all_tenants: bool = False) -> list[PoolView]:
        """The pools, with the tenant's backlog; with the scope operator also that of all tenants."""
        return (await self._http.get(_Pools, "/v1/pools", _whose(all_tenants))).pools

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
        """Who did what, latest first. Needs scope admin."""
        query = {"target": target, "subject": subject, "limit": limit}
        return self._list(AuditPage, lambda page: page.entries, "/v1/audit", query, cursor)

    async def pauses(self) -> tuple[PauseView, ...]:
        """What is held: tenants, pools, or everything."""
        return (await self._http.get(PauseList, "/v1/pauses")).pauses

    async def hold(self, kind: str, name: str = "") -> tuple[PauseView, ...]:
        """Pause a TENANT or a POOL by its name, or ALL. Jobs are still accepted.

        Needs scope operator, or admin for the own tenant.
        """
        return (await self._http.change(PauseList, "POST", _pause_path(kind, name, "pause"))).pauses

    async def let_go(self, kind: str, name: str = "") -> tuple[PauseView, ...]:
        """Resume what was paused, as fast as the pools take it. Needs the same scope."""
        return (await self._http.change(PauseList, "POST", _pause_path(kind, name, "resume"))).pauses

    async def get_tenant(self, tenant: str) -> TenantView:
        return await self._http.get(TenantView, path_of("tenants", tenant))

    async def put_tenant(self, tenant: str, settings: TenantSettings) -> TenantView:
        return await self._http.change(TenantView, "PUT", path_of("tenants", tenant), settings)

    async def usage(self, tenant: str, from_: date | None = None, to: date | None = None) -> UsageView:
        """What a tenant used from one day to another (UTC), both included; the last 30 days, if not said."""
        return await self._http.get(UsageView, path_of("tenants", tenant, "usage"), {"from": from_, "to": to})

    async def overview(self, *, all_tenants: bool = False) -> dict[str, Any]:
        """The tenant's backlog; with the scope operator also that of all tenants, with rate and lateness."""
        return await self._http.get(dict[str, Any], "/v1/overview", _whose(all_tenants))

    async def proof(self, nonce: str) -> str:
        """What the server answers to a challenge. Raises NotFound if it has no shared secret."""
        return (await self._http.get(dict[str, str], "/proof", {"nonce": nonce})).get("proof", "")

    async def health(self) -> dict[str, Any]:
        """What the server says of itself. Raises ServerUnreachable if it says nothing."""
        return await self._http.get(dict[str, Any], "/healthz")

    # How it is asked

    async def _create_batch(self, batch: list[bytes], atomic: bool) -> list[JobView | Problem]:
        path = "/v1/jobs/batch" + ("?atomic=true" if atomic else "")
        answer = await self._http.change(_Batch, "POST", path, msgspec.Raw(b'{"jobs":[' + b",".join(batch) + b"]}"))
        return [_job_or_problem(raw) for raw in answer.jobs]

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


def _whose(all_tenants: bool) -> dict[str, Any]:
    return {"scope": "all"} if all_tenants else {}


def _pause_path(kind: str, name: str, action: str) -> str:
    within = {"TENANT": ("tenants", name), "POOL": ("pools", name), "ALL": ()}
    if kind not in within:
        raise InvalidInput.of("/kind", f"must be one of {', '.join(within)}", kind)
    return path_of(*within[kind], action)


class _Workers(msgspec.Struct):
    workers: list[WorkerView]


class _Batch(msgspec.Struct):
    jobs: list[msgspec.Raw]


def _either(given: T | None, fields: dict[str, Any], make: Callable[..., T]) -> T:
    if given is None:
        return make(**fields)
    if fields:
        raise InvalidInput(f"give either a whole {type(given).__name__} or its fields, not both")
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
    """Ids tell what they name: those of jobs are UUIDs of version 7, those of executions of version 8."""
    if not isinstance(of, str):
        return isinstance(of, JobView)
    try:
        return uuid.UUID(of).version == 7
    except ValueError:
        return False


def _failure(ended: ExecutionView) -> ExecutionFailed:
    said = f": {ended.error.type}: {ended.error.message}" if ended.error else ""
    return ExecutionFailed(
        f"execution {ended.execution_id} is {ended.state} after attempt {ended.attempt}{said}",
        execution_id=ended.execution_id,
        state=ended.state,
        attempt=ended.attempt,
        error=msgspec.to_builtins(ended.error),
    )


def _members(value: msgspec.Struct) -> dict[str, Any]:
    members: dict[str, Any] = msgspec.to_builtins(value)
    return members
