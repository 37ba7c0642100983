"""The database of a cluster is upgraded to a later release while processes of the present release work."""

import asyncio
import json
import shutil
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

import pytest

import noonday
from noonday.drivers.postgres.migrations import all_migrations, migrate
from tests.drivers.postgres.own_schema import opened, own_schema

pytestmark = pytest.mark.slow

PRESENT = Path(noonday.__file__).parents[1]
LOAD = Path(__file__).with_name("upgrade_load.py")
PROCESSES = 2
PATIENCE_SEC = 120.0
LARGER = """
-- A migration as a later release may have one: a column of each hot table, an index of a partitioned table and of another, and a
-- function that every settlement calls.
ALTER TABLE jobs ADD COLUMN note text;
ALTER TABLE timeline ADD COLUMN note text;
ALTER TABLE executions ADD COLUMN note text;
CREATE INDEX executions_note ON executions (tenant, note) WHERE note IS NOT NULL;
CREATE INDEX jobs_created ON jobs (tenant, created_ms);
CREATE OR REPLACE FUNCTION lock_slots(changes jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM jsonb_to_recordset(changes) e (tenant text, key text) JOIN slots s ON s.tenant = e.tenant AND s.key = e.key
    ORDER BY s.tenant, s.key FOR UPDATE OF s;
END $$;
"""
UPGRADE = """
import asyncio, json, sys
from noonday.drivers.postgres.connection import PostgresDatabase, PostgresOptions
from noonday.drivers.postgres.migrations import migrate, missing_indexes, pending

async def main():
    database = await PostgresDatabase.open(PostgresOptions(sys.argv[1], schema=sys.argv[2], sessions=2))
    print(json.dumps([await migrate(database), await pending(database), await missing_indexes(database)]))
    await database.close()

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def larger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source of a later release: the present one with one more migration."""
    source = tmp_path_factory.mktemp("larger") / "src"
    shutil.copytree(PRESENT / "noonday", source / "noonday", ignore=shutil.ignore_patterns("__pycache__"))
    migrations = source / "noonday/drivers/postgres/migrations"
    (migrations / f"{int(max(all_migrations())[:4]) + 1:04}_larger.sql").write_text(LARGER)
    return source


async def python(source: Path, *arguments: str) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, *arguments, env={"PYTHONPATH": str(source)}, stdin=PIPE, stdout=PIPE, stderr=PIPE
    )


async def next_count(process: Process) -> int:
    assert process.stdout is not None
    line = await asyncio.wait_for(process.stdout.readline(), PATIENCE_SEC)
    assert line, (await process.communicate())[1].decode()
    return int(line)


async def output_of(process: Process) -> str:
    out, error = await asyncio.wait_for(process.communicate(b""), PATIENCE_SEC)
    assert process.returncode == 0, error.decode()
    return out.decode()


async def test_a_database_is_upgraded_while_the_present_release_is_at_work(larger: Path) -> None:
    async with own_schema() as options:
        async with opened(options) as database:
            await migrate(database)
        load = [await python(PRESENT, str(LOAD), options.url, options.schema, str(n)) for n in range(PROCESSES)]
        try:
            for process in load:
                await next_count(process)
            upgrade = await python(larger, "-c", UPGRADE, options.url, options.schema)
            done, left, missing = json.loads(await output_of(upgrade))
            assert "index executions_note" in done
            assert (left, missing) == ([], [])
            for process in load:
                await next_count(process)
            # Jobs that the load has created, all of which have ended.
            count = sum([int((await output_of(process)).split()[-1]) for process in load])
            async with opened(options) as database:
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
