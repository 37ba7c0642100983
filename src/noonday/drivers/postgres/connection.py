"""Sessions of PostgreSQL, and the translation of what can go wrong with them."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import asyncpg

from noonday.model.errors import BadData, BadSettings, NoondayError, StoreFailed, StoreUnavailable

Session = Any
"""A session, or one inside a transaction: `asyncpg` wraps those of a pool, and does not say so in its types."""


@dataclass(frozen=True)
class PostgresOptions:
    url: str
    schema: str = "noonday"
    sessions: int = 10
    """How many sessions this process may have at most."""
    connect_sec: float = 5.0
    statement_sec: float = 20.0
    lock_sec: float = 2.0
    idle_in_transaction_sec: float = 5.0
    """A process that is frozen inside a transaction holds its locks no longer than this."""
    ca_file: str | None = None
    """Verify the server's certificate by this; then the session is always encrypted."""
    name: str = "noonday"


class Database:
    """A pool of sessions."""

    def __init__(self, options: PostgresOptions, pool: "asyncpg.Pool[Any]") -> None:
        self.options = options
        self._pool = pool

    @classmethod
    async def open(cls, options: PostgresOptions) -> "Database":
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
            )
        return cls(options, pool)

    async def close(self) -> None:
        try:
            await asyncio.wait_for(self._pool.close(), 5)
        except (TimeoutError, OSError, asyncpg.PostgresError):
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


async def connect(options: PostgresOptions) -> Session:
    """One session beside the pool, to be closed by whoever asked for it."""
    return await asyncpg.connect(
        options.url,
        timeout=options.connect_sec,
        command_timeout=options.statement_sec + 2,
        ssl=_tls(options),
        server_settings=_session_settings(options),
    )


_BAD_DATA = frozenset({"22", "23"})
"""Classes of SQLSTATE that are about values: data exceptions, and constraints that a value violates."""
_NOT_NOW = frozenset({"08", "25", "28", "3D", "40", "53", "55", "57"})
"""Classes that are about the connection, the server or other sessions: every statement may meet them."""
_OURS = "ND"
"""Answers of our own functions. Whoever called the function knows what they mean."""


@contextlib.contextmanager
def translated() -> Any:
    """No exception of the client library leaves a driver."""
    try:
        yield
    except asyncpg.PostgresError as error:
        if (error.sqlstate or "").startswith(_OURS):
            raise
        raise translation_of(error) from error
    except (OSError, TimeoutError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
        raise StoreUnavailable(f"PostgreSQL cannot be used now: {type(error).__name__}: {error}") from error


def translation_of(error: asyncpg.PostgresError) -> NoondayError:
    """Returns the error in our words, by the class of its SQLSTATE. Unknown classes are to be tried again."""
    state = error.sqlstate or ""
    if state[:2] in _BAD_DATA:
        return BadData(f"PostgreSQL refuses a value: {error}", sqlstate=state)
    if state[:2] == "28":
        return StoreUnavailable(f"PostgreSQL refuses us: {error}")
    if state[:2] == "3D":
        return StoreUnavailable(f"{error}: create it, or name another one in the URL")
    if isinstance(error, asyncpg.UndefinedTableError):
        return StoreUnavailable(f"{error}: run `noonday migrate`")
    kind = StoreUnavailable if state[:2] in _NOT_NOW else StoreFailed
    remedy = ": run `noonday migrate`, unless an upgrade is under way" if state[:2] == "42" else ""
    return kind(f"PostgreSQL cannot be used now: {type(error).__name__} ({state}): {error}{remedy}")


@contextlib.contextmanager
def readable() -> Any:
    """A URL that cannot be understood is named without what may be a password in it."""
    try:
        yield
    except OSError:
        raise  # among them certificates that do not verify, which are ValueErrors as well
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
        # Every hot statement is prepared once and has one good plan: each key it is given looked up in an index. What the
        # planner believes of tables that were empty a moment ago must not lead it to read them whole.
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
