import sqlite3
from pathlib import Path

import pytest

from noonday.drivers.sqlite.connection import FileOptions
from noonday.drivers.sqlite.migrations import migrate
from noonday.drivers.sqlite.store import open_store, prepare
from noonday.model.errors import StoreUnavailable
from noonday.model.ids import PARTITIONS


def connection(path: Path | str = ":memory:") -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None)


def schema(conn: sqlite3.Connection) -> list[tuple[str, str]]:
    return conn.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()


def test_a_new_file_gets_every_migration_in_order() -> None:
    conn = connection()
    applied = migrate(conn)
    assert applied
    assert applied == sorted(applied)
    assert [name for (name,) in conn.execute("SELECT name FROM migrations ORDER BY name")] == applied


@pytest.mark.slow
def test_a_migrated_file_is_left_alone() -> None:
    conn = connection()
    migrate(conn)
    before = schema(conn)
    assert migrate(conn) == []
    assert schema(conn) == before


@pytest.mark.slow
def test_a_new_file_has_every_partition_without_an_owner() -> None:
    conn = connection()
    migrate(conn)
    rows = conn.execute("SELECT partition, epoch, owner FROM partitions ORDER BY partition").fetchall()
    assert rows == [(partition, 0, "") for partition in range(PARTITIONS)]


@pytest.mark.slow
def test_a_file_of_a_newer_version_is_refused() -> None:
    conn = connection()
    migrate(conn)
    conn.execute("INSERT INTO migrations VALUES ('9999_later.sql', 'x', '2040-01-01T00:00:00Z')")
    with pytest.raises(StoreUnavailable, match=r"newer Noonday.*9999_later\.sql"):
        migrate(conn)


def test_a_migration_that_was_changed_after_it_had_been_applied_is_refused() -> None:
    conn = connection()
    (first, *_) = migrate(conn)
    conn.execute("UPDATE migrations SET checksum = 'another' WHERE name = ?", (first,))
    with pytest.raises(StoreUnavailable, match=f"{first} was changed"):
        migrate(conn)


def test_a_migration_that_fails_leaves_the_file_as_it_was() -> None:
    conn = connection()
    conn.execute("CREATE TABLE executions (something_else)")
    before = schema(conn)
    with pytest.raises(sqlite3.OperationalError):
        migrate(conn)
    after = [row for row in schema(conn) if "migrations" not in row[0]]
    assert after == before
    assert conn.execute("SELECT count(*) FROM migrations").fetchone() == (0,)


@pytest.mark.slow
async def test_store_on_a_refused_file_raises_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "noonday.db"
    await open_store(str(path), FileOptions(), 0).close()
    conn = connection(path)
    conn.execute("INSERT INTO migrations VALUES ('9999_later.sql', 'x', '2040-01-01T00:00:00Z')")
    conn.close()
    with pytest.raises(StoreUnavailable, match="upgrade Noonday"):
        open_store(str(path), FileOptions(), 0)


@pytest.mark.slow
def test_a_store_in_memory_has_the_schema_of_a_migrated_file() -> None:
    migrated, copied = connection(), connection()
    migrate(migrated)
    prepare(copied)
    assert schema(copied) == schema(migrated)
    assert migrate(copied) == []


def test_copies_in_memory_share_nothing() -> None:
    first, second = connection(), connection()
    prepare(first)
    first.execute("DELETE FROM partitions")
    prepare(second)
    assert second.execute("SELECT count(*) FROM partitions").fetchone() == (PARTITIONS,)


def test_a_store_in_memory_that_has_rows_keeps_them() -> None:
    conn = connection()
    prepare(conn)
    conn.execute("DELETE FROM partitions")
    prepare(conn)
    assert conn.execute("SELECT count(*) FROM partitions").fetchone() == (0,)
