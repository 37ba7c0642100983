"""Sessions of PostgreSQL, and the translation of their errors."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import asyncpg

from noonday.model.errors import BadData, BadSettings, NoondayError, StoreFailed, StoreUnavailable

Session = Any
"""A session, also one inside a transaction. `asyncpg` wraps the sessions of a pool, which its types do not show."""


@dataclass(frozen=True)
class PostgresOptions:
    url: str
    schema: str = "noonday"
    sessions: int = 10
    """Most sessions of this process."""
    connect_sec: float = 5.0
    statement_sec: float = 20.0
    lock_sec: float = 2.0
    idle_in_transaction_sec: float = 5.0
    """The longest time for which a process that froze inside a transaction keeps its locks."""
    ca_file: str | None = None
    """File with the certificates that verify the server. If it is set, sessions are always encrypted."""
    name: str = "noonday"


class PostgresDatabase:
    """A pool of sessions."""

    def __init__(self, options: PostgresOptions, pool: "asyncpg.Pool[Any]") -> None:
        self.options = options
        self._pool = pool

    @classmethod
    async def open(cls, options: PostgresOptions) -> "PostgresDatabase":
        with translated(), readable():
            pool = await asyncpg.create_pool(
                options.url,
                min_size=1,
                max_size=options.sessions,
                timeout=options.connect_sec,
                command_timeout=options.statement_sec + 2,
                ssl=_tls(options),
                server_settings=_session_settings(options),
                max_inactive_connection_lifetime=300,
                reset=_leave_as_it_is,
            )
        return cls(options, pool)

    async def close(self) -> None:
        try:
            await asyncio.wait_for(self._pool.close(), 5)
        except (TimeoutError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError):
            self._pool.terminate()

    @contextlib.asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        with translated():
            async with self._pool.acquire(timeout=self.options.connect_sec) as session:
                yield session

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Session]:
        async with self.session() as session, session.transaction():
            yield session

    async def fetch(self, query: str, *parameters: Any) -> Sequence[Any]:
        async with self.session() as session:
            rows: Sequence[Any] = await session.fetch(query, *parameters)
            return rows

    async def row(self, query: str, *parameters: Any) -> Any:
        async with self.session() as session:
            return await session.fetchrow(query, *parameters)

    async def value(self, query: str, *parameters: Any) -> Any:
        async with self.session() as session:
            return await session.fetchval(query, *parameters)


async def _leave_as_it_is(session: Session) -> None:
    """Spare a returned session the reset, a round trip as long as a short statement's.

    The pool has rolled back what was open. No statement on a session of the pool changes settings, listens or takes locks that
    outlive the transaction: what needs that has a session of its own, by `connect`.
    """


async def connect(options: PostgresOptions) -> Session:
    """Open one session beside the pool. The caller closes it."""
    return await asyncpg.connect(
        options.url,
        timeout=options.connect_sec,
        command_timeout=options.statement_sec + 2,
        ssl=_tls(options),
        server_settings=_session_settings(options),
    )


_BAD_DATA = frozenset({"22", "23"})
"""Classes of SQLSTATE that are about values: data exceptions and violated constraints."""
_UNAVAILABLE = frozenset({"08", "25", "28", "3D", "40", "53", "55", "57"})
"""Classes of SQLSTATE that are about the connection, the server or other sessions. Any statement may meet them."""
_OWN = "ND"
"""Class of the SQLSTATEs that Noonday's own functions raise. The caller of the function handles them."""


@contextlib.contextmanager
def translated() -> Any:
    """Turn errors of the client library into errors of Noonday. None of the former leaves a driver."""
    try:
        yield
    except asyncpg.PostgresError as error:
        if (error.sqlstate or "").startswith(_OWN):
            raise
        raise translation_of(error) from error
    except (OSError, TimeoutError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
        raise StoreUnavailable(f"PostgreSQL cannot be used now: {type(error).__name__}: {error}") from error


def translation_of(error: asyncpg.PostgresError) -> NoondayError:
    """Return the Noonday error for an error of PostgreSQL, by the class of its SQLSTATE. Unknown classes may be retried."""
    state = error.sqlstate or ""
    if state[:2] in _BAD_DATA:
        return BadData(f"PostgreSQL refuses a value: {error}", sqlstate=state)
    if state[:2] == "28":
        return StoreUnavailable(f"PostgreSQL refuses us: {error}")
    if state[:2] == "3D":
        return StoreUnavailable(f"{error}: create it, or name another one in the URL")
    if isinstance(error, asyncpg.UndefinedTableError):
        return StoreUnavailable(f"{error}: run `noonday migrate`")
    kind = StoreUnavailable if state[:2] in _UNAVAILABLE else StoreFailed
    remedy = ": run `noonday migrate`, unless an upgrade is under way" if state[:2] == "42" else ""
    return kind(f"PostgreSQL cannot be used now: {type(error).__name__} ({state}): {error}{remedy}")


@contextlib.contextmanager
def readable() -> Any:
    """Report a URL that cannot be parsed, without showing it, because it may contain a password."""
    try:
        yield
    except OSError:
        raise  # Certificates that do not verify are ValueErrors as well.
    except ValueError as error:
        raise BadSettings(
            "postgres.url cannot be read: expected postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
        ) from error


def _session_settings(options: PostgresOptions) -> dict[str, str]:
    return {
        "search_path": f'"{options.schema}"',
        "application_name": options.name,
        "statement_timeout": _ms(options.statement_sec),
        "lock_timeout": _ms(options.lock_sec),
        "idle_in_transaction_session_timeout": _ms(options.idle_in_transaction_sec),
        "jit": "off",
        # Every hot statement is prepared once and has one good plan, which looks up each given key in an index. Outdated
        # statistics of tables that were empty a moment ago must not make the planner read them whole.
        "plan_cache_mode": "force_generic_plan",
        "enable_seqscan": "off",
        "enable_hashjoin": "off",
        "enable_mergejoin": "off",
        "max_parallel_workers_per_gather": "0",
    }


def _ms(seconds: float) -> str:
    return str(round(seconds * 1000))


def _tls(options: PostgresOptions) -> ssl.SSLContext | None:
    if options.ca_file is None:
        return None
    try:
        return ssl.create_default_context(cafile=options.ca_file)
    except OSError as error:
        raise BadSettings(f"cannot read the certificates in {options.ca_file}: {error}") from error
