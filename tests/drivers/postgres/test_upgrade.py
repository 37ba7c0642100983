"""The database of a cluster is upgraded while processes of the release before are at work."""

import asyncio
import subprocess
import sys
import tarfile
from asyncio.subprocess import PIPE, Process
from io import BytesIO
from pathlib import Path

import pytest

from noonday.drivers.postgres.connection import PostgresDatabase
from noonday.drivers.postgres.migrations import checksum_of, migrate, missing_indexes, pending
from tests.drivers.postgres.own_schema import opened, own_schema

pytestmark = pytest.mark.slow

FORMER = "967ae21ae755e56b7f5eeff159100c941d1f72c1"
"""The last commit of the release before, whose schema ends with 0014."""
LOAD = Path(__file__).with_name("former_load.py")
PROCESSES = 2
PATIENCE_SEC = 120.0


@pytest.fixture(scope="module")
def former(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source of the release before."""
    place = tmp_path_factory.mktemp("former")
    archive = subprocess.run(
        ["git", "-C", str(LOAD.parents[3]), "archive", "--format=tar", FORMER, "src"], capture_output=True, check=False
    )
    if archive.returncode:
        pytest.skip(f"the release before is not in this checkout: {archive.stderr.decode().strip()}")
    with tarfile.open(fileobj=BytesIO(archive.stdout)) as tar:
        tar.extractall(place, filter="data")
    return place / "src"


async def python(former: Path, *arguments: str) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, *arguments, env={"PYTHONPATH": str(former)}, stdin=PIPE, stdout=PIPE, stderr=PIPE
    )


async def migrate_as_before(former: Path, database: PostgresDatabase) -> None:
    """As the release before does, but for its lock: it would wait in a transaction, beside tests that build indexes."""
    files = sorted((former / "noonday/drivers/postgres/migrations").glob("*.sql"))
    assert files[-1].name == "0014_lines.sql"
    async with database.transaction() as session:
        await session.execute(f'CREATE SCHEMA "{database.options.schema}"')
        await session.execute(
            "CREATE TABLE migrations (name text PRIMARY KEY, checksum text NOT NULL, applied_at timestamptz NOT NULL)"
        )
        for path in files:
            text = path.read_text("utf-8")
            await session.execute(text)
            await session.execute("INSERT INTO migrations VALUES ($1, $2, now())", path.name, checksum_of(text))


async def next_count(process: Process) -> int:
    assert process.stdout is not None
    line = await asyncio.wait_for(process.stdout.readline(), PATIENCE_SEC)
    assert line, (await process.communicate())[1].decode()
    return int(line)


async def stopped(process: Process) -> int:
    """How many jobs it has made, all of which have ended."""
    out, error = await asyncio.wait_for(process.communicate(b""), PATIENCE_SEC)
    assert process.returncode == 0, error.decode()
    return int(out.split()[-1])


async def test_a_database_is_upgraded_while_the_release_before_is_at_work(former: Path) -> None:
    async with own_schema() as options:
        async with opened(options) as database:
            await migrate_as_before(former, database)
        load = [await python(former, str(LOAD), options.url, options.schema, str(n)) for n in range(PROCESSES)]
        try:
            for process in load:
                await next_count(process)
            async with opened(options) as database:
                done = await migrate(database)
                assert "index executions_turns" in done
                assert (await pending(database), await missing_indexes(database)) == ([], [])
                for process in load:
                    await next_count(process)
                count = sum([await stopped(process) for process in load])
                ended = await database.fetch("SELECT state, dispatch, count(*) FROM executions GROUP BY 1, 2")
                assert [tuple(row) for row in ended] == [(5, 1, count)]
                assert await database.value("SELECT count(DISTINCT job_id) FROM executions") == count
                assert await database.value("SELECT count(*) FROM timeline WHERE due_ms IS NOT NULL") == 0
                assert await database.value("SELECT count(*) FROM batches") == 0
        finally:
            for process in load:
                if process.returncode is None:
                    process.kill()
                    await process.communicate()
