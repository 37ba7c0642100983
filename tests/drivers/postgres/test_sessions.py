from collections.abc import AsyncIterator

import pytest

from noonday.drivers.postgres.sessions import PostgresSessions
from noonday.drivers.sql.sessions import SqlSession
from tests.drivers.postgres.own_schema import opened, own_schema


@pytest.fixture
async def sessions() -> AsyncIterator[PostgresSessions]:
    async with own_schema() as options, opened(options) as database:
        await database.value(f'CREATE SCHEMA "{options.schema}"')
        await database.value("CREATE TABLE numbers (n integer)")
        yield PostgresSessions(database)


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
