"""Add jobs and complete executions through the caller's own connection, in the caller's own transaction.

The caller's session stays as it is. Every statement is one call of a function of Noonday's schema, which is named, and the
function sets the search_path while it runs. Parameters and results are text and numbers, so that codecs of the caller do not
matter.
"""

import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import Any, NoReturn

import msgspec
from msgspec.structs import asdict

from noonday.drivers.postgres.write_sets import TRIES, JobVersion, Versioned, checks_of, paused_of, payload_of
from noonday.drivers.sql.named_sql import load
from noonday.model.audit import AuditEntry
from noonday.model.change import ChangeResult, NewJob
from noonday.model.errors import Conflict, InvalidInput, StoreUnavailable
from noonday.model.execution import Execution
from noonday.model.ids import ExecutionId, JobId, TenantId
from noonday.model.message import HandlerInfo, Report
from noonday.model.pause import DueResume
from noonday.model.receipt import Receipt
from noonday.model.stored import read_stored
from noonday.model.view import TenantSettings
from noonday.ports.completions import Completions
from noonday.ports.jobs import Decide, Jobs, Upsert
from noonday.transitions.editing import fire_row
from noonday.transitions.inputs import Inputs
from noonday.transitions.rows import job_columns
from noonday.transitions.settling import match_reports
from noonday.transitions.write_set import as_json

SQL = load("noonday.drivers.postgres", "transactional")
FetchValue = Callable[..., Awaitable[Any]]


class _TakenKey(msgspec.Struct, frozen=True):
    """A unique key, and the job that has it."""

    key: str
    job_id: str


class _Inputs(msgspec.Struct, frozen=True):
    """The inputs of a settlement. They are empty if the execution does not exist."""

    rows: list[Versioned] = []
    jobs: list[JobVersion] = []
    open: list[Execution] = []


_taken = msgspec.json.Decoder(list[_TakenKey])
_inputs = msgspec.json.Decoder(_Inputs)


class CallersConnection:
    """A connection of asyncpg, psycopg 3 or Django that is inside a transaction, for queries of one value."""

    def __init__(self, connection: Any, schema: str) -> None:
        """Raises InvalidInput for any other connection, and Conflict outside of a transaction."""
        self._fetch_value, self.blocks = _fetcher(connection)
        self._schema = '"' + schema.replace('"', '""') + '"'

    async def value(self, statement: str, *parameters: str | int) -> Any:
        return await self._fetch_value(re.sub(r"\bcallers_", f"{self._schema}.callers_", statement), *parameters)


class CallersJobs(Jobs):
    """Adds jobs in the caller's transaction. It never edits a job, because the lock would last until the caller commits."""

    def __init__(self, connection: CallersConnection) -> None:
        self._connection = connection

    async def add(
        self,
        jobs: Sequence[NewJob],
        *,
        upsert: Upsert,
        audit: AuditEntry | None,
        seal: Callable[[Sequence[ChangeResult | None]], Receipt] | None,
    ) -> list[ChangeResult | None]:
        taken = await self._connection.value(SQL.add, as_json(_rows_of(jobs, audit)))
        if taken is not None:
            raise _key_taken(_taken.decode(taken))
        return [None] * len(jobs)

    async def edit(
        self,
        tenant: TenantId,
        job_id: JobId,
        decide: Decide,
        *,
        show: Sequence[ExecutionId] = (),
        seal: Callable[[ChangeResult], Receipt] | None = None,
    ) -> ChangeResult:
        raise _only_adds()

    async def keep_receipt(self, receipt: Receipt) -> None:
        raise _only_adds()

    async def next_resume_ms(self) -> int | None:
        raise _only_adds()

    async def due_resumes(self, now_ms: int, per_tenant: int, limit: int) -> list[DueResume]:
        raise _only_adds()

    async def find_receipt(self, tenant: TenantId, key: str) -> Receipt | None:
        raise _only_adds()


class CallersRegistry:
    """Reads pools, handlers, unique keys and the settings of tenants: the reads that the catalogue and the quotas need."""

    def __init__(self, connection: CallersConnection) -> None:
        self._connection = connection

    async def pool_names(self) -> list[str]:
        return msgspec.json.decode(await self._connection.value(SQL.pools), type=list[str])

    async def find_handler(self, pool: str, name: str) -> HandlerInfo | None:
        text = await self._connection.value(SQL.handler, pool, name)
        return None if text is None else read_stored(text, HandlerInfo)

    async def handler_names(self, pool: str, most: int) -> list[str]:
        return msgspec.json.decode(await self._connection.value(SQL.handler_names, pool, most), type=list[str])

    async def find_tenant(self, tenant: TenantId) -> tuple[TenantSettings, int] | None:
        """Return the settings of a tenant. The time they were saved is always 0."""
        text = await self._connection.value(SQL.tenant, tenant)
        return None if text is None else (read_stored(text, TenantSettings), 0)

    async def jobs_waiting(self, tenant: TenantId, most: int) -> int:
        return int(await self._connection.value(SQL.waiting, tenant, most))

    async def next_one_shot_ms(self, tenant: TenantId) -> int | None:
        due_ms: int | None = await self._connection.value(SQL.next_one_shot, tenant)
        return due_ms

    async def keys_taken(self, tenant: TenantId, keys: Collection[str]) -> set[str]:
        """Return an empty set, because `CallersJobs.add` refuses a key that is taken."""
        return set()

    async def jobs_named(self, tenant: TenantId, names: Collection[str]) -> dict[str, list[JobId]]:
        """Return nothing: a job that is added in a caller's transaction is not compared with others of its name."""
        return {}


class PostgresCompletions(Completions):
    """Completes executions by the rules of the recorder, so that executions that wait for them are released."""

    def __init__(self, schema: str = "noonday") -> None:
        self._schema = schema

    async def complete(self, connection: Any, report: Report, now_ms: int, *, schema: str | None = None) -> None:
        callers = CallersConnection(connection, schema or self._schema)
        for _ in range(TRIES):
            writes = _decide(await callers.value(SQL.inputs, report.execution_id), report, now_ms)
            if await callers.value(SQL.settle, writes, now_ms):
                return
        raise StoreUnavailable(f"execution {report.execution_id}: gave up after {TRIES} write conflicts; retry")


def _decide(text: str | None, report: Report, now_ms: int) -> str:
    """Return the write set that `callers_settle` takes. Raises Conflict if the report is not of the current dispatch."""
    found = _inputs.decode(text) if text is not None else _Inputs()
    settlement = match_reports((row.execution for row in found.rows), [report])
    writes, settled = settlement.settle(Inputs(open_=found.open, paused=paused_of(found.jobs)), now_ms)
    if settled.refused or not writes.settled:
        raise _superseded(report, found.rows[0].execution if found.rows else None)
    return as_json(payload_of(writes) | checks_of(found.rows, found.jobs))


def _superseded(report: Report, row: Execution | None) -> Conflict:
    if row is None:
        now = "it is not in this database"
    elif row.state.name in ("PENDING", "RUNNING"):
        now = f"it is {row.state.name} with dispatch {row.dispatch}, worker {row.worker_id or 'none yet'}"
    else:
        now = f"it is {row.state.name} already"
    return Conflict(
        f"execution {report.execution_id} cannot be completed by dispatch {report.dispatch} of worker {report.worker_id}: {now}",
        execution_id=report.execution_id,
        dispatch=report.dispatch,
    )


def _rows_of(jobs: Sequence[NewJob], audit: AuditEntry | None) -> dict[str, Any]:
    """Return jobs, their fire rows and an audit entry as `callers_add` takes them. A payload is base64, as in all JSON."""
    return {
        "jobs": [job_columns(new.job) for new in jobs],
        "timeline": [fire_row(new.job, new.fire) for new in jobs if new.fire],
        "audit": [asdict(audit) | {"detail": as_json(audit.detail)}] if audit else [],
    }


def _key_taken(taken: Sequence[_TakenKey]) -> Conflict:
    keys = (
        ", ".join(f"{each.key!r} by job {each.job_id}" for each in taken) or "by a job that this transaction cannot see"
    )
    return Conflict(
        f"unique key taken: {keys}. Inside your own transaction, a job can be created but not changed: to update the existing "
        "job, enqueue without a connection",
        jobs=[each.job_id for each in taken],
    )


def _only_adds() -> Conflict:
    return Conflict("inside your own transaction, jobs can only be created: edit them without a connection")


_NO_TRANSACTION = (
    "this connection is not inside a transaction: begin one (`async with connection.transaction():`; in Django "
    "`with transaction.atomic():`), write your own data in it, and call this before it ends"
)


def _fetcher(connection: Any) -> tuple[FetchValue, bool]:
    """Return the function that queries one value on a connection, and whether it blocks instead of waiting."""
    if callable(getattr(connection, "fetchval", None)) and callable(getattr(connection, "is_in_transaction", None)):
        if not connection.is_in_transaction():
            raise Conflict(_NO_TRANSACTION)
        fetchval: FetchValue = connection.fetchval
        return fetchval, False
    if callable(getattr(connection, "ensure_connection", None)) and hasattr(connection, "in_atomic_block"):
        return _django_fetcher(connection), True
    return _psycopg_fetcher(connection) or _refuse(connection)


def _psycopg_fetcher(connection: Any) -> tuple[FetchValue, bool] | None:
    try:
        from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor
        from psycopg.pq import TransactionStatus
        from psycopg.rows import tuple_row
    except ImportError:
        return None
    if not isinstance(connection, AsyncConnection | Connection):
        return None
    # Without autocommit, the first statement begins a transaction.
    if connection.autocommit and connection.info.transaction_status is TransactionStatus.IDLE:
        raise Conflict(_NO_TRANSACTION)

    # Not `connection.cursor()`: the caller may have changed its rows and placeholders.
    if isinstance(connection, AsyncConnection):
        cursors = partial(AsyncCursor, connection, row_factory=tuple_row)

        async def fetch_value(statement: str, *parameters: str | int) -> Any:
            async with cursors() as cursor:
                await cursor.execute(_with_percents(statement).encode(), parameters)
                row = await cursor.fetchone()
                return None if row is None else row[0]

        return fetch_value, False
    blocking_cursors = partial(Cursor, connection, row_factory=tuple_row)

    async def fetch_value_blocking(statement: str, *parameters: str | int) -> Any:
        with blocking_cursors() as cursor:
            cursor.execute(_with_percents(statement).encode(), parameters)
            row = cursor.fetchone()
            return None if row is None else row[0]

    return fetch_value_blocking, True


def _django_fetcher(connection: Any) -> FetchValue:
    """Query through Django's own cursor, of psycopg 3 or 2, so that its logging and its state of the transaction hold."""
    if connection.vendor != "postgresql":
        raise InvalidInput(
            f"Django's connection {connection.alias!r} is to {connection.vendor}: a job is created in a transaction of Noonday's "
            "PostgreSQL database only. Use transaction.on_commit(lambda: app.sync.enqueue(...)) instead"
        )
    if not connection.in_atomic_block:
        raise Conflict(_NO_TRANSACTION)

    async def fetch_value(statement: str, *parameters: str | int) -> Any:
        with connection.cursor() as cursor:
            cursor.execute(_with_percents(statement), parameters)
            row = cursor.fetchone()
            return None if row is None else row[0]

    return fetch_value


def _with_percents(statement: str) -> str:
    return re.sub(r"\$\d", "%s", statement)


def _refuse(connection: Any) -> NoReturn:
    raise InvalidInput(
        f"a {type(connection).__module__}.{type(connection).__qualname__} cannot be used here: pass a Connection of "
        "asyncpg, an AsyncConnection or Connection of psycopg 3, or a connection of Django"
    )
