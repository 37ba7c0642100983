import asyncio
from collections.abc import AsyncIterator

import pytest

from noonday.drivers.sql.sessions import SqlSession
from noonday.drivers.sqlite.connection import MEMORY, FileOptions, InlineDatabase
from noonday.drivers.sqlite.sessions import SqliteSessions, run_through


@pytest.fixture
async def sessions() -> AsyncIterator[SqliteSessions]:
    database = InlineDatabase(
        MEMORY, FileOptions(), lambda conn: conn.execute("CREATE TABLE numbers (n INTEGER)") and None
    )
    yield SqliteSessions(database)
    await database.close()


async def test_list_is_one_parameter(sessions: SqliteSessions) -> None:
    rows = await sessions.fetch("SELECT value AS n FROM json_each(?1)", [1, 2])
    assert [row["n"] for row in rows] == [1, 2]


async def test_work_that_raises_writes_nothing(sessions: SqliteSessions) -> None:
    async def work(session: SqlSession) -> None:
        await session.execute("INSERT INTO numbers VALUES (1)")
        raise ValueError

    with pytest.raises(ValueError):
        await sessions.write(work)
    assert await sessions.value("SELECT count(*) FROM numbers") == 0


async def test_missing_row_is_none(sessions: SqliteSessions) -> None:
    assert await sessions.row("SELECT n FROM numbers") is None
    assert await sessions.value("SELECT n FROM numbers") is None
    assert await sessions.decode(int, "SELECT n FROM numbers") is None


def test_work_that_awaits_more_than_its_session_is_refused() -> None:
    with pytest.raises(RuntimeError, match="may await only the session"):
        run_through(asyncio.sleep(0))
