import asyncio
import os
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from noonday.drivers.sqlite.connection import (
    MEMORY,
    FileOptions,
    InlineDatabase,
    PendingWork,
    SqliteDatabase,
    ThreadedDatabase,
    commit_group,
    connect,
    translated,
)
from noonday.drivers.sqlite.store import open_store
from noonday.model.errors import BadData, Conflict, NoondayError, StoreFailed, StoreLost, StoreUnavailable, is_bad_data
from noonday.model.ids import TenantId
from tests.support.eventually import eventually

QUICK = FileOptions(synchronous="OFF", busy_timeout_ms=1)


def prepare(conn: sqlite3.Connection) -> None:
    conn.execute("CREATE TABLE IF NOT EXISTS notes (text TEXT UNIQUE)")


def note(text: str) -> Callable[[sqlite3.Connection], str]:
    """Return work that writes a note and returns it."""

    def work(conn: sqlite3.Connection) -> str:
        conn.execute("INSERT INTO notes VALUES (?)", (text,))
        return text

    return work


def notes(conn: sqlite3.Connection) -> list[str]:
    return [text for (text,) in conn.execute("SELECT text FROM notes ORDER BY rowid")]


@pytest.fixture
async def threaded(tmp_path: Path) -> AsyncIterator[ThreadedDatabase]:
    database = ThreadedDatabase(str(tmp_path / "noonday.db"), QUICK, prepare)
    yield database
    await database.close()


@pytest.fixture(params=["inline", "threaded"])
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SqliteDatabase]:
    if request.param == "inline":
        opened: SqliteDatabase = InlineDatabase(MEMORY, QUICK, prepare)
    else:
        opened = ThreadedDatabase(str(tmp_path / "noonday.db"), QUICK, prepare)
    yield opened
    await opened.close()


class Blocked:
    """Blocks the writer with a request, so that the following requests gather behind it."""

    def __init__(self, database: ThreadedDatabase) -> None:
        self.go_on = threading.Event()
        self.began = threading.Event()
        self.statements: list[str] = []
        self.task = asyncio.ensure_future(database.write(self._hold))

    def _hold(self, conn: sqlite3.Connection) -> None:
        conn.set_trace_callback(self.statements.append)
        self.began.set()
        assert self.go_on.wait(60)

    async def group(self, database: ThreadedDatabase, *works: Callable[[sqlite3.Connection], Any]) -> list[Any]:
        """Return the results of requests that the writer finds waiting together."""
        await eventually(self.began.is_set)
        waiting = [asyncio.ensure_future(database.write(work)) for work in works]
        await asyncio.sleep(0)
        self.go_on.set()
        answers = await asyncio.gather(*waiting, return_exceptions=True)
        await self.task
        return answers

    @property
    def commits(self) -> int:
        return self.statements.count("COMMIT")


# Both kinds of database


async def test_write_returns_its_result_and_is_readable(database: SqliteDatabase) -> None:
    assert await database.write(note("a")) == "a"
    assert await database.read(notes) == ["a"]


async def test_a_request_that_raises_undoes_itself(database: SqliteDatabase) -> None:
    def work(conn: sqlite3.Connection) -> None:
        note("half")(conn)
        raise Conflict("no")

    with pytest.raises(Conflict, match="no"):
        await database.write(work)
    assert await database.read(notes) == []
    await database.write(note("after"))
    assert await database.read(notes) == ["after"]


async def test_no_error_of_sqlite_crosses_the_edge(database: SqliteDatabase) -> None:
    await database.write(note("a"))
    with pytest.raises(BadData, match="UNIQUE"):
        await database.write(note("a"))
    with pytest.raises(StoreFailed, match="no such table"):
        await database.read(lambda conn: conn.execute("SELECT * FROM nowhere"))


async def test_failed_preparation_raises_an_error_of_ours(tmp_path: Path) -> None:
    def spoil(conn: sqlite3.Connection) -> None:
        conn.execute("CREATE nonsense")

    for kind, path in ((InlineDatabase, MEMORY), (ThreadedDatabase, str(tmp_path / "noonday.db"))):
        with pytest.raises(StoreUnavailable, match="syntax error"):
            kind(path, QUICK, spoil)


# Group commit


async def test_requests_that_wait_together_are_committed_together(threaded: ThreadedDatabase) -> None:
    blocked = Blocked(threaded)
    answers = await blocked.group(threaded, *[note(str(n)) for n in range(20)])
    assert answers == [str(n) for n in range(20)]
    assert blocked.commits == 2
    assert await threaded.read(notes) == answers


async def test_a_bad_request_does_not_harm_its_group(threaded: ThreadedDatabase) -> None:
    def bad(conn: sqlite3.Connection) -> None:
        note("half")(conn)
        raise ValueError("bad")

    before, failed, duplicate, after = await Blocked(threaded).group(
        threaded, note("before"), bad, note("before"), note("after")
    )
    assert (before, after) == ("before", "after")
    assert isinstance(failed, ValueError)
    assert isinstance(duplicate, BadData)
    assert await threaded.read(notes) == ["before", "after"]


async def test_requests_of_a_group_see_earlier_writes(threaded: ThreadedDatabase) -> None:
    answers = await Blocked(threaded).group(threaded, note("a"), notes, note("b"), notes)
    assert answers == ["a", ["a"], "b", ["a", "b"]]


async def test_an_answer_comes_only_after_the_commit(threaded: ThreadedDatabase) -> None:
    """Another connection, which sees only committed data, sees every answered write."""
    other = sqlite3.connect(threaded.path)

    async def write_and_look(text: str) -> bool:
        await threaded.write(note(text))
        return text in notes(other)

    assert all(await asyncio.gather(*[write_and_look(str(n)) for n in range(100)]))
    other.close()


async def test_no_request_is_answered_before_its_group_is_committed(threaded: ThreadedDatabase) -> None:
    go_on = threading.Event()
    reached = threading.Event()

    def slow(conn: sqlite3.Connection) -> None:
        reached.set()
        assert go_on.wait(60)

    blocked = Blocked(threaded)
    grouped = asyncio.ensure_future(blocked.group(threaded, note("first"), slow))
    await eventually(reached.is_set)
    assert await threaded.read(notes) == []
    assert not grouped.done()
    go_on.set()
    assert await grouped == ["first", None]


async def test_full_disk_fails_the_writes_it_cannot_store_and_loses_no_other(threaded: ThreadedDatabase) -> None:
    def shrink(conn: sqlite3.Connection) -> None:
        pages = conn.execute("PRAGMA page_count").fetchone()[0]
        conn.execute(f"PRAGMA max_page_count = {pages + 2}")

    await threaded.write(note("kept"))
    await threaded.write(shrink)
    small, large = await Blocked(threaded).group(threaded, note("small"), note("x" * 1_000_000))
    assert isinstance(large, StoreUnavailable)
    assert "full" in large.detail
    stored = await threaded.read(notes)
    assert stored == ["kept", *([small] if small == "small" else [])]
    assert small == "small" or isinstance(small, StoreUnavailable)


async def test_cancelled_caller_does_not_harm_its_group(threaded: ThreadedDatabase) -> None:
    blocked = Blocked(threaded)
    await eventually(blocked.began.is_set)
    given_up = asyncio.ensure_future(threaded.write(note("given up")))
    await asyncio.sleep(0)
    given_up.cancel()
    assert await blocked.group(threaded, note("kept")) == ["kept"]
    assert "kept" in await threaded.read(notes)


async def test_loops_in_several_threads_are_each_answered(threaded: ThreadedDatabase) -> None:
    def work(name: str) -> list[str]:
        async def write() -> list[str]:
            return await asyncio.gather(*[threaded.write(note(f"{name}{n}")) for n in range(50)])

        return asyncio.run(write())

    answers = await asyncio.gather(*[asyncio.to_thread(work, name) for name in "abc"])
    assert answers == [[f"{name}{n}" for n in range(50)] for name in "abc"]
    assert len(await threaded.read(notes)) == 150


async def test_close_finishes_waiting_requests_and_refuses_later_ones(tmp_path: Path) -> None:
    database = ThreadedDatabase(str(tmp_path / "noonday.db"), QUICK, prepare)
    waiting = [asyncio.ensure_future(database.write(note(str(n)))) for n in range(10)]
    await asyncio.sleep(0)
    await database.close()
    assert await asyncio.gather(*waiting) == [str(n) for n in range(10)]
    with pytest.raises(StoreUnavailable, match="closed"):
        await database.write(note("late"))
    await database.close()


async def test_a_reader_cannot_write(threaded: ThreadedDatabase) -> None:
    with pytest.raises(StoreUnavailable):
        await threaded.read(note("by the back door"))
    assert await threaded.read(notes) == []


async def test_a_commit_that_fails_fails_the_whole_group() -> None:
    conn = connect(MEMORY, QUICK)
    conn.execute("PRAGMA foreign_keys = ON")
    conn.execute("CREATE TABLE parents (id INTEGER PRIMARY KEY)")
    conn.execute("CREATE TABLE children (parent REFERENCES parents (id) DEFERRABLE INITIALLY DEFERRED)")
    loop = asyncio.get_running_loop()
    good = PendingWork(lambda c: c.execute("INSERT INTO parents VALUES (1)").rowcount, loop.create_future())
    orphan = PendingWork(lambda c: c.execute("INSERT INTO children VALUES (7)").rowcount, loop.create_future())
    commit_group(conn, [good, orphan], "a file")
    for request in (good, orphan):
        request.resolve()
        with pytest.raises(StoreUnavailable, match="a file"):
            await request.future
    assert not conn.in_transaction
    assert conn.execute("SELECT count(*) FROM parents").fetchone() == (0,)
    conn.close()


async def test_a_damaged_page_fails_only_the_request_that_meets_it(tmp_path: Path) -> None:
    path = tmp_path / "noonday.db"
    conn = connect(str(path), QUICK)
    prepare(conn)
    conn.execute("CREATE TABLE damaged (n INTEGER)")
    (page,) = conn.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'damaged'").fetchone()
    (size,) = conn.execute("PRAGMA page_size").fetchone()
    conn.close()
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xa5" * size)

    conn = connect(str(path), QUICK)
    loop = asyncio.get_running_loop()
    before = PendingWork(note("before"), loop.create_future())
    culprit = PendingWork(lambda c: c.execute("DELETE FROM damaged").rowcount, loop.create_future())
    after = PendingWork(note("after"), loop.create_future())
    commit_group(conn, [before, culprit, after], str(path))
    for request in (before, culprit, after):
        request.resolve()
    assert (await before.future, await after.future) == ("before", "after")
    with pytest.raises(StoreFailed, match="is damaged"):
        await culprit.future
    assert notes(conn) == ["before", "after"]
    conn.close()


# Errors of ours


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("SQLITE_FULL", "disk.*full.*free some space"),
        ("SQLITE_READONLY", "check the permissions"),
        ("SQLITE_READONLY_DBMOVED", "check the permissions"),
        ("SQLITE_CANTOPEN", "check the permissions"),
        ("SQLITE_CORRUPT", "noonday doctor --data /data/noonday.db"),
        ("SQLITE_NOTADB", "not a Noonday file"),
        ("SQLITE_BUSY", "locked by another program"),
        ("SQLITE_IOERR_WRITE", "check the disk"),
        ("SQLITE_ERROR", "/data/noonday.db: the text of SQLite"),
    ],
)
def test_each_error_names_the_remedy(name: str, words: str) -> None:
    error = sqlite3.OperationalError("the text of SQLite")
    error.sqlite_errorname = name
    with pytest.raises(StoreUnavailable, match=words) as caught, translated("/data/noonday.db"):
        raise error
    assert caught.value.__cause__ is error


def test_an_error_of_ours_is_not_touched() -> None:
    with pytest.raises(Conflict, match="ours"), translated("a file"):
        raise Conflict("ours")


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=r"the folder .*/nowhere does not exist"):
        connect(str(tmp_path / "nowhere" / "noonday.db"), QUICK)


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "noonday.db"
    path.write_bytes(b"certainly not a database, but long enough to look at" * 100)
    with pytest.raises(StoreUnavailable, match="not a Noonday file"):
        connect(str(path), QUICK)


def test_a_folder_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="check the permissions"):
        connect(str(tmp_path), QUICK)


async def test_a_file_that_another_program_has_locked_is_named(threaded: ThreadedDatabase) -> None:
    other = sqlite3.connect(threaded.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="locked by another program"):
        await threaded.write(note("a"))
    other.execute("ROLLBACK")
    assert await threaded.write(note("a")) == "a"
    other.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for root")
async def test_a_read_only_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "noonday.db"
    await ThreadedDatabase(str(path), QUICK, prepare).close()
    path.chmod(0o400)
    with pytest.raises(StoreUnavailable, match="check the permissions"):
        ThreadedDatabase(str(path), QUICK, prepare)


# Errors about data


def named(name: str) -> sqlite3.Error:
    error = sqlite3.OperationalError("told to")
    error.sqlite_errorname = name
    return error


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("SQLITE_CONSTRAINT_UNIQUE", BadData),
        ("SQLITE_CONSTRAINT_NOTNULL", BadData),
        ("SQLITE_MISMATCH", BadData),
        ("SQLITE_TOOBIG", BadData),
        ("SQLITE_ERROR", StoreFailed),
        ("SQLITE_CORRUPT_INDEX", StoreFailed),
        ("SQLITE_INTERNAL", StoreFailed),
        ("SQLITE_FULL", StoreUnavailable),
        ("SQLITE_IOERR_WRITE", StoreUnavailable),
        ("SQLITE_BUSY", StoreUnavailable),
        ("SQLITE_LOCKED", StoreUnavailable),
        ("SQLITE_READONLY_DBMOVED", StoreUnavailable),
        ("SQLITE_CANTOPEN", StoreUnavailable),
        ("SQLITE_NOMEM", StoreUnavailable),
        ("SQLITE_NOTADB", StoreUnavailable),
        ("", StoreUnavailable),
    ],
)
def test_only_errors_about_data_are_final(name: str, kind: type[NoondayError]) -> None:
    with pytest.raises(NoondayError) as caught, translated("a file"):
        raise named(name)
    assert type(caught.value) is kind
    assert is_bad_data(caught.value) == (kind is BadData)


# Waiting requests


async def test_queries_that_take_long_hold_up_neither_the_engine_nor_each_other(threaded: ThreadedDatabase) -> None:
    go_on, begun = threading.Event(), threading.Semaphore(0)

    def scan(_: sqlite3.Connection) -> bool:
        begun.release()
        return go_on.wait(60)

    scans = [asyncio.create_task(threaded.query(scan)) for _ in range(2)]
    await asyncio.to_thread(lambda: [begun.acquire() for _ in scans])
    async with asyncio.timeout(60):
        assert await threaded.read(notes) == []
        assert await threaded.query(notes) == []
        assert await threaded.write(note("a")) == "a"
        assert await threaded.query(notes) == ["a"]
    go_on.set()
    assert await asyncio.gather(*scans) == [True, True]


async def test_a_query_cannot_write(threaded: ThreadedDatabase) -> None:
    with pytest.raises(StoreUnavailable):
        await threaded.query(note("a"))


async def test_queries_that_wait_are_answered_before_the_file_is_closed(tmp_path: Path) -> None:
    database = ThreadedDatabase(str(tmp_path / "noonday.db"), QUICK, prepare)
    waiting = [asyncio.create_task(database.query(notes)) for _ in range(20)]
    await asyncio.sleep(0)
    await database.close()
    assert await asyncio.gather(*waiting) == [[]] * 20
    with pytest.raises(StoreUnavailable):
        await database.query(notes)


@pytest.mark.parametrize("umask", [0o000, 0o022])
async def test_files_are_for_their_owner_alone_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        database = ThreadedDatabase(str(tmp_path / "noonday.db"), QUICK, prepare)
        await database.write(note("a"))
        modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
        await database.close()
    finally:
        os.umask(before)
    assert modes == {"noonday.db": 0o600, "noonday.db-wal": 0o600, "noonday.db-shm": 0o600}


# A broken writer


class Failing:
    """A connection of which some statements fail from now on."""

    def __init__(self, conn: sqlite3.Connection, *statements: str) -> None:
        self._conn = conn
        self._statements = statements

    def __getattr__(self, name: str) -> Any:
        return getattr(self._conn, name)

    def execute(self, statement: str, *parameters: Any) -> Any:
        if statement in self._statements:
            raise named("SQLITE_IOERR_FSYNC")
        return self._conn.execute(statement, *parameters)


async def test_writer_that_can_neither_commit_nor_roll_back_fails_all_requests(threaded: ThreadedDatabase) -> None:
    """The requests of the group, those that wait behind it, and later ones fail: none waits for ever."""
    await threaded.write(note("before"))
    threaded._writer._conn = Failing(threaded._writer._conn, "COMMIT", "ROLLBACK")  # type: ignore[assignment]
    answers = await asyncio.gather(*(threaded.write(note(str(n))) for n in range(200)), return_exceptions=True)
    assert {type(answer) for answer in answers} == {StoreLost}
    with pytest.raises(StoreLost, match="neither commit nor roll back"):
        await threaded.write(note("after"))
    assert await threaded.read(notes) == ["before"]


async def test_commit_that_fails_and_is_rolled_back_is_tried_again(threaded: ThreadedDatabase) -> None:
    whole = threaded._writer._conn
    threaded._writer._conn = Failing(whole, "COMMIT")  # type: ignore[assignment]
    with pytest.raises(StoreUnavailable) as caught:
        await threaded.write(note("a"))
    assert type(caught.value) is StoreUnavailable
    threaded._writer._conn = whole
    assert await threaded.write(note("b")) == "b"


async def test_thread_answers_after_an_unexpected_error(threaded: ThreadedDatabase) -> None:
    def fail(conn: object, group: object) -> None:
        raise MemoryError("no more")

    threaded._reader._serve = fail
    for _ in range(2):
        with pytest.raises(StoreLost, match="no more"):
            await threaded.read(notes)
    assert await threaded.write(note("a")) == "a"


@pytest.mark.slow
async def test_the_engine_reads_settings_and_pauses_while_every_query_thread_is_busy(tmp_path: Path) -> None:
    store, go_on = open_store(str(tmp_path / "noonday.db"), QUICK, lead_ms=0), threading.Event()
    scans = [asyncio.create_task(store.database.query(lambda _: go_on.wait(60))) for _ in range(10)]
    async with asyncio.timeout(60):
        assert await store.settings_store.pauses() == []
        assert await store.settings_store.tenants_after(0) == []
        assert await store.settings_store.find_tenant(TenantId("acme")) is None
        assert await store.settings_store.capped_pools() == []
    assert not any(scan.done() for scan in scans)
    go_on.set()
    await asyncio.gather(*scans)
    await store.close()
