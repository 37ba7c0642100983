from collections.abc import AsyncIterator

import pytest

from noonday.drivers.postgres.connection import PostgresDatabase
from noonday.drivers.postgres.sessions import PostgresSessions
from noonday.drivers.sql.sessions import SqlSession
from tests.drivers.postgres.own_schema import opened, own_schema


@pytest.fixture
async def database() -> AsyncIterator[PostgresDatabase]:
    async with own_schema() as options, opened(options) as database:
        await database.value(f'CREATE SCHEMA "{options.schema}"')
        await database.value("CREATE TABLE numbers (n integer)")
        yield database


@pytest.fixture
def sessions(database: PostgresDatabase) -> PostgresSessions:
    return PostgresSessions(database)


async def test_list_is_one_parameter(sessions: PostgresSessions) -> None:
    rows = await sessions.fetch("SELECT n FROM unnest($1::integer[]) e (n)", [1, 2])
    assert [row["n"] for row in rows] == [1, 2]


async def test_work_that_raises_writes_nothing(sessions: PostgresSessions) -> None:
    async def work(session: SqlSession) -> None:
        await session.execute("INSERT INTO numbers VALUES (1)")
        raise ValueError

    with pytest.raises(ValueError):
        await sessions.write(work)
    assert await sessions.value("SELECT count(*) FROM numbers") == 0


async def test_missing_row_is_none(sessions: PostgresSessions) -> None:
    assert await sessions.row("SELECT n FROM numbers") is None
    assert await sessions.value("SELECT n FROM numbers") is None
    assert await sessions.decode(int, "SELECT n FROM numbers") is None


async def test_a_session_that_is_returned_in_a_transaction_is_rolled_back(database: PostgresDatabase) -> None:
    """A commit may fail, or its answer may be lost. The next statement on the same session must not continue there."""
    async with database.session() as session:
        server_process = session.get_server_pid()
        await session.execute("BEGIN")
        await session.execute("INSERT INTO numbers VALUES (1)")
    async with database.session() as session:
        assert session.get_server_pid() == server_process
        assert not session.is_in_transaction()
        assert await session.fetchval("SELECT count(*) FROM numbers") == 0


async def test_returning_a_session_costs_no_statement(database: PostgresDatabase) -> None:
    async with database.session() as session:
        server_process = session.get_server_pid()
        await session.execute("SELECT 'the last statement'")
    async with database.session() as session:
        query = "SELECT query FROM pg_stat_activity WHERE pid = $1"
        seen = await database.value(query, server_process)
    assert seen == "SELECT 'the last statement'"
