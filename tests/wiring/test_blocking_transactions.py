"""An application without an event loop that creates jobs in its own transactions, with psycopg or with Django."""

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import psycopg
import pytest

from noonday import Context, Noonday
from noonday.crypto.keyring import new_env_value
from noonday.drivers.postgres.connection import PostgresDatabase
from noonday.drivers.postgres.migrations import migrate
from noonday.model.errors import Conflict, InvalidInput
from tests.drivers.postgres.own_schema import opened, own_schema
from tests.support.servers_up import postgres_url

ROOT = Path(__file__).parents[2]
KEYS = new_env_value()


async def ship(ctx: Context, order: int) -> None: ...


@pytest.fixture
def app() -> Noonday:
    app = Noonday()
    app.handler("ship", pool="shop")(ship)
    return app


@pytest.fixture(autouse=True)
async def database(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PostgresDatabase]:
    async with own_schema() as options, opened(options) as database:
        await migrate(database)
        await database.value("INSERT INTO pools VALUES ('shop', '{}')")
        monkeypatch.setenv("NOONDAY_POSTGRES_SCHEMA", options.schema)
        monkeypatch.setenv("NOONDAY_KEYS", KEYS)
        yield database


async def test_jobs_commit_or_roll_back_with_a_psycopg_transaction(app: Noonday, database: PostgresDatabase) -> None:
    with psycopg.connect(postgres_url()) as connection:  # without autocommit, a transaction begins by itself
        one = app.sync.enqueue(ship, 1, connection=connection)
        two = app.sync.enqueue_many([app.spec_for(ship, n) for n in range(120)], connection=connection)
        assert await database.value("SELECT count(*) FROM jobs") == 0
        connection.commit()
        assert await database.value("SELECT count(*) FROM jobs WHERE id = ANY($1)", [one.job_id, *two]) == 121
        app.sync.enqueue(ship, 2, connection=connection)
        connection.rollback()
    assert await database.value("SELECT count(*) FROM jobs") == 121


async def test_a_connection_outside_a_transaction_is_refused(app: Noonday) -> None:
    with (
        psycopg.connect(postgres_url(), autocommit=True) as connection,
        pytest.raises(Conflict, match="not inside a transaction"),
    ):
        app.sync.enqueue(ship, 1, connection=connection)


async def test_a_connection_that_needs_an_event_loop_is_refused_before_it_is_used(app: Noonday) -> None:
    connection = await asyncpg.connect(postgres_url())
    async with connection.transaction():
        with pytest.raises(InvalidInput, match="await app"):
            app.sync.enqueue(ship, 1, connection=connection)
    await connection.close()


DJANGO = """
import sys
import django
from django.conf import settings
from django.db import connection, connections, transaction
from psycopg import conninfo

from noonday import Noonday
from noonday.model.errors import NoondayError

parts = conninfo.conninfo_to_dict(sys.argv[1])
settings.configure(DATABASES={
    "default": {"ENGINE": "django.db.backends.postgresql", "NAME": parts["dbname"], "USER": parts.get("user", ""),
                "PASSWORD": parts.get("password", ""), "HOST": parts.get("host", ""), "PORT": parts.get("port", "")},
    "other": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
})
django.setup()
app = Noonday()

@app.handler("ship", pool="shop")
def ship(ctx, order: int) -> None: ...

def refused(connection):
    try:
        app.sync.enqueue(ship, 1, connection=connection)
    except NoondayError as error:
        print(type(error).__name__, error.detail)

with transaction.atomic():
    print(app.sync.enqueue(ship, 1, unique_key="k", connection=connection).job_id)
try:
    with transaction.atomic():
        app.sync.enqueue(ship, 2, connection=connection)
        raise LookupError
except LookupError:
    pass
with transaction.atomic():
    with transaction.atomic():
        refused_key = None
        try:
            app.sync.enqueue(ship, 3, unique_key="k", connection=connection)
        except NoondayError as error:
            print(type(error).__name__)
    print(app.sync.enqueue_many([app.spec_for(ship, 4)], connection=connections["default"])[0])
refused(connection)
with transaction.atomic(using="other"):
    refused(connections["other"])
"""


@pytest.mark.slow
async def test_jobs_commit_or_roll_back_with_a_transaction_of_django(database: PostgresDatabase) -> None:
    script = [sys.executable, "-W", "error", "-c", DJANGO, postgres_url()]
    environment = {**os.environ, "NOONDAY_KEYS": KEYS, "NOONDAY_POSTGRES_SCHEMA": database.options.schema}
    ran = subprocess.run(  # noqa: ASYNC221 (its transactions need nothing of this loop)
        script, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.stderr == ""
    first, taken, last, outside, elsewhere = ran.stdout.splitlines()
    found = await database.fetch("SELECT id::text FROM jobs ORDER BY id")
    assert [row[0] for row in found] == [first, last]
    assert taken == "Conflict"
    assert outside.startswith("Conflict this connection is not inside a transaction")
    assert "Django's connection 'other' is to sqlite" in elsewhere
    assert "transaction.on_commit(lambda: app.sync.enqueue(...))" in elsewhere
