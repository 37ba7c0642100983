"""Sessions of PostgreSQL for the stores that both SQL databases share."""

from collections.abc import Sequence
from typing import Any, TypeVar

from noonday.drivers.postgres.connection import PostgresDatabase, Session
from noonday.drivers.sql.sessions import Row, SqlSession, SqlSessions, Work

T = TypeVar("T")


class PostgresSession(SqlSession):
    def __init__(self, session: Session) -> None:
        self.raw = session

    async def fetch(self, query: str, *parameters: Any) -> Sequence[Row]:
        rows: Sequence[Row] = await self.raw.fetch(query, *parameters)
        return rows

    async def row(self, query: str, *parameters: Any) -> Row | None:
        return await self.raw.fetchrow(query, *parameters)

    async def value(self, query: str, *parameters: Any) -> Any:
        return await self.raw.fetchval(query, *parameters)


class PostgresSessions(SqlSessions):
    """Runs work in sessions of the pool."""

    dialect = "noonday.drivers.postgres"

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def write(self, work: Work[T]) -> T:
        async with self._database.transaction() as session:
            return await work(PostgresSession(session))

    async def read(self, work: Work[T]) -> T:
        async with self._database.session() as session:
            return await work(PostgresSession(session))

    async def query(self, work: Work[T]) -> T:
        return await self.read(work)
