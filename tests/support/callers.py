"""An application with its own connection to the same database, with another search_path."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

import asyncpg
import psycopg
from psycopg.rows import dict_row

from tests.support.servers_up import postgres_url


class Caller(Protocol):
    """The operations of tests on a connection, for any client library."""

    connection: Any

    def transaction(self) -> AbstractAsyncContextManager[Any]: ...
    async def execute(self, statement: str) -> Any: ...
    async def value(self, statement: str) -> Any: ...


class AsyncpgCaller:
    def __init__(self, connection: "asyncpg.Connection[Any]") -> None:
        self.connection = connection

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        return self.connection.transaction()

    async def execute(self, statement: str) -> Any:
        await self.connection.execute(statement)

    async def value(self, statement: str) -> Any:
        return await self.connection.fetchval(statement)


class PsycopgCaller:
    def __init__(self, connection: "psycopg.AsyncConnection[dict[str, Any]]") -> None:
        self.connection = connection

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        return self.connection.transaction()

    async def execute(self, statement: str) -> Any:
        await self.connection.execute(statement)

    async def value(self, statement: str) -> Any:
        row = await (await self.connection.execute(statement)).fetchone()
        return next(iter(row.values())) if row else None


@asynccontextmanager
async def asyncpg_caller() -> AsyncIterator[Caller]:
    connection = await asyncpg.connect(postgres_url())
    try:
        # Like many applications: values of jsonb are not text then.
        await connection.set_type_codec("jsonb", encoder=repr, decoder=eval, schema="pg_catalog")
        yield AsyncpgCaller(connection)
    finally:
        await connection.close()


@asynccontextmanager
async def psycopg_caller() -> AsyncIterator[Caller]:
    connection = await psycopg.AsyncConnection.connect(postgres_url(), autocommit=True, row_factory=dict_row)
    try:
        yield PsycopgCaller(connection)
    finally:
        await connection.close()


class BlockingPsycopgCaller:
    """A synchronous connection, whose calls block the loop of the test."""

    def __init__(self, connection: "psycopg.Connection[dict[str, Any]]") -> None:
        self.connection = connection

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        with self.connection.transaction():
            yield

    async def execute(self, statement: str) -> None:
        self.connection.execute(statement)

    async def value(self, statement: str) -> Any:
        row = self.connection.execute(statement).fetchone()
        return next(iter(row.values())) if row else None


@asynccontextmanager
async def blocking_psycopg_caller() -> AsyncIterator[Caller]:
    with psycopg.connect(postgres_url(), autocommit=True, row_factory=dict_row) as connection:
        yield BlockingPsycopgCaller(connection)


CALLERS: dict[str, Callable[[], AbstractAsyncContextManager[Caller]]] = {
    "asyncpg": asyncpg_caller,
    "psycopg": psycopg_caller,
    "blocking psycopg": blocking_psycopg_caller,
}
