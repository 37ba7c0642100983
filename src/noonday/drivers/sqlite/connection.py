"""Connections to one SQLite file: one writer with group commit, and readers.

One thread does all writes. It takes all requests that wait, runs each in its own savepoint inside one transaction, syncs once,
and only then answers. So a 201 or a started handler is always on disk, and a thousand requests cost one sync. A request that
raises is rolled back alone. A commit that fails (disk full, file gone) fails its whole group.

Python releases its global lock around every step of a statement, and a busy thread then keeps it for milliseconds. So the hot
statements are few and large: a batch goes in as one JSON parameter and comes out as one JSON value.
"""

import asyncio
import os
import queue
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import structlog

from noonday.drivers.sqlite.numbered import NumberedConnection
from noonday.model.errors import BadData, NoondayError, StoreFailed, StoreLost, StoreUnavailable

log = structlog.get_logger("noonday.sqlite")
T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

MEMORY = ":memory:"
_MAX_GROUP = 64
"""Most requests in one transaction."""
_QUERY_THREADS = 3
"""Number of queries that run side by side."""


@dataclass(frozen=True)
class FileOptions:
    synchronous: str = "FULL"
    cache_mb: int = 64
    busy_timeout_ms: int = 5_000


def connect(path: str, options: FileOptions, *, read_only: bool = False) -> sqlite3.Connection:
    """Open the file as the writer or as a reader. Raises StoreUnavailable with the cause and the remedy."""
    if sqlite3.sqlite_version_info < (3, 38):
        raise StoreUnavailable(
            f"SQLite {sqlite3.sqlite_version} is too old: Noonday needs 3.38 or later; upgrade Python or its SQLite library"
        )
    with translated(path):
        if path != MEMORY and not Path(path).parent.is_dir():
            raise StoreUnavailable(f"cannot open {path}: the folder {Path(path).parent} does not exist; create it")
        if path != MEMORY:
            _create_private(path)
        conn = sqlite3.connect(
            path, isolation_level=None, check_same_thread=False, cached_statements=256, factory=NumberedConnection
        )
        conn.execute(f"PRAGMA busy_timeout = {options.busy_timeout_ms}")
        conn.execute(f"PRAGMA cache_size = {-options.cache_mb * 1024}")
        conn.execute("PRAGMA temp_store = MEMORY")
        if read_only:
            conn.execute("PRAGMA query_only = ON")
        else:
            conn.execute("PRAGMA journal_mode = WAL")
            conn.execute(f"PRAGMA synchronous = {options.synchronous}")
            conn.execute("PRAGMA journal_size_limit = 67108864")
            # A checkpoint of the WAL costs two syncs. Rare checkpoints copy a page that changed often only once.
            conn.execute("PRAGMA wal_autocheckpoint = 16000")
        return conn


def _create_private(path: str) -> None:
    """Create the file if it is missing, for its owner alone. SQLite gives its WAL and index files the same mode."""
    # If this fails, opening the file fails too, with a better message.
    with suppress(OSError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


class translated:
    """Context manager that turns errors of SQLite into errors of Noonday."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, sqlite3.Error):
            raise translation_of(error, self.path) from error


_BAD_DATA = ("SQLITE_CONSTRAINT", "SQLITE_MISMATCH", "SQLITE_TOOBIG")
"""Names of errors that are about values."""
_FAILED = ("SQLITE_ERROR", "SQLITE_INTERNAL", "SQLITE_MISUSE", "SQLITE_CORRUPT")
"""Names of errors that other statements may not meet: missing or malformed objects, and damaged pages."""


def translation_of(error: sqlite3.Error, path: str) -> NoondayError:
    """Return the Noonday error for an error of SQLite, chosen by the error's name."""
    name = getattr(error, "sqlite_errorname", "") or ""
    if name.startswith(_BAD_DATA):
        return BadData(f"{path} refuses a value: {error}")
    return (StoreFailed if name.startswith(_FAILED) else StoreUnavailable)(_explain(error, path))


def _explain(error: sqlite3.Error, path: str) -> str:
    name = getattr(error, "sqlite_errorname", "") or ""
    if name.startswith("SQLITE_FULL"):
        return f"the disk that holds {path} is full: free some space; nothing that was acknowledged is lost"
    if name.startswith(("SQLITE_READONLY", "SQLITE_PERM", "SQLITE_CANTOPEN")):
        return f"{path} cannot be opened for writing: check the permissions of the file and its folder ({error})"
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return (
            f"{path} is damaged or not a Noonday file: run `noonday doctor --data {path}` or restore a backup ({error})"
        )
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return f"{path} is locked by another program: close it ({error})"
    if name.startswith("SQLITE_IOERR"):
        return f"reading or writing {path} failed: check the disk ({error})"
    return f"{path}: {error}"


class PendingWork(Generic[T]):
    """Work for a transaction, and the future that gets its answer."""

    __slots__ = ("answer", "error", "future", "work")

    def __init__(self, work: Work[T], future: "asyncio.Future[T]") -> None:
        self.work = work
        self.future = future
        self.answer: T | None = None
        self.error: BaseException | None = None

    def resolve(self) -> None:
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.answer)  # type: ignore[arg-type]


def commit_group(conn: sqlite3.Connection, requests: Sequence[PendingWork[Any]], path: str) -> None:
    """Run requests in one transaction, each in its own savepoint, and sync. Afterwards each has an answer or an error.

    A request that meets a damaged page spoils the transaction for the others. Then each runs alone. Raises StoreLost if the
    transaction can be neither committed nor rolled back: later requests would become part of it.
    """
    try:
        with translated(path):
            conn.execute("BEGIN IMMEDIATE")
            for request in requests:
                _run_in_savepoint(conn, request, path)
            conn.execute("COMMIT")
    except NoondayError as error:
        _roll_back(conn, path, error)
        if isinstance(error, StoreFailed) and len(requests) > 1:
            for request in requests:
                request.answer = request.error = None
                commit_group(conn, [request], path)
            return
        # A commit that fails says nothing about the data of any one request.
        unavailable = error if isinstance(error, StoreUnavailable) else StoreUnavailable(error.detail)
        for request in requests:
            request.error = request.error or unavailable


def _roll_back(conn: sqlite3.Connection, path: str, cause: NoondayError) -> None:
    if not conn.in_transaction:
        return
    try:
        conn.execute("ROLLBACK")
    except sqlite3.Error as error:
        if conn.in_transaction:
            raise StoreLost(
                f"{path} can neither commit nor roll back ({cause.detail}; then: {error}): check the disk and restart;"
                " nothing that was acknowledged is lost"
            ) from error


def _run_in_savepoint(conn: sqlite3.Connection, request: PendingWork[Any], path: str) -> None:
    conn.execute("SAVEPOINT request")
    try:
        with translated(path):
            request.answer = request.work(conn)
        conn.execute("RELEASE request")
    except BaseException as error:
        request.error = error
        # On a full disk, SQLite itself rolls back the whole transaction. Then the group fails at its COMMIT.
        if conn.in_transaction:
            conn.execute("ROLLBACK TO request")
            conn.execute("RELEASE request")
        elif isinstance(error, StoreUnavailable):
            raise


class SqliteDatabase(ABC):
    """Runs the driver's work on connections to one file."""

    path: str

    @abstractmethod
    async def write(self, work: Work[T]) -> T:
        """Run work in a transaction. Returns when it is synced to disk."""

    @abstractmethod
    async def read(self, work: Work[T]) -> T:
        """Run short work of the engine on a connection that cannot write. Such work runs one after the other."""

    async def query(self, work: Work[T]) -> T:
        """Run a user's query, which may take long, like `read`. Several queries run side by side, and none delays a `read`."""
        return await self.read(work)

    @abstractmethod
    async def close(self) -> None: ...


class ThreadedDatabase(SqliteDatabase):
    """A writer thread with group commit, a reader thread, and some threads for queries."""

    def __init__(self, path: str, options: FileOptions, prepare: Callable[[sqlite3.Connection], object]) -> None:
        self.path = path
        writer = connect(path, options)
        with translated(path):
            prepare(writer)
        self._writer = _ConnectionThread(writer, path, self._write_group, "noonday-writer")
        self._reader = _ConnectionThread(
            connect(path, options, read_only=True), path, self._read_group, "noonday-reader"
        )
        queries: queue.SimpleQueue[PendingWork[Any] | None] = queue.SimpleQueue()
        query_options = replace(options, cache_mb=max(1, options.cache_mb // _QUERY_THREADS))
        self._query_threads = [
            _ConnectionThread(
                connect(path, query_options, read_only=True),
                path,
                self._read_group,
                f"noonday-query-{number}",
                waiting=queries,
                # In a group, the last query would wait for the first.
                group=1,
            )
            for number in range(_QUERY_THREADS)
        ]

    async def write(self, work: Work[T]) -> T:
        return await self._writer.run(work)

    async def read(self, work: Work[T]) -> T:
        return await self._reader.run(work)

    async def query(self, work: Work[T]) -> T:
        return await self._query_threads[0].run(work)

    async def close(self) -> None:
        readers = [*self._query_threads, self._reader]
        # All stop requests are sent before any wait: threads that share a queue may take each other's.
        for reader in readers:
            reader.request_stop()
        for reader in readers:
            await asyncio.to_thread(reader.wait_until_stopped)
        self._writer.request_stop()
        await asyncio.to_thread(self._writer.wait_until_stopped)

    def _write_group(self, conn: sqlite3.Connection, group: Sequence[PendingWork[Any]]) -> None:
        commit_group(conn, group, self.path)

    def _read_group(self, conn: sqlite3.Connection, group: Sequence[PendingWork[Any]]) -> None:
        for request in group:
            try:
                with translated(self.path):
                    request.answer = request.work(conn)
            except BaseException as error:
                request.error = error


class _ConnectionThread:
    """One connection, the thread that owns it, and the queue of requests for it."""

    def __init__(
        self,
        conn: sqlite3.Connection,
        path: str,
        serve: Callable[[sqlite3.Connection, Sequence[PendingWork[Any]]], None],
        name: str,
        *,
        waiting: "queue.SimpleQueue[PendingWork[Any] | None] | None" = None,
        group: int = _MAX_GROUP,
    ) -> None:
        """Start the thread. `waiting` is a queue that several threads serve; without it, the thread has its own."""
        self._conn = conn
        self._path = path
        self._serve = serve
        self._waiting = queue.SimpleQueue() if waiting is None else waiting
        self._group = group
        self._closed = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    async def run(self, work: Work[T]) -> T:
        if self._closed:
            raise StoreUnavailable(f"{self._path} is closed")
        request: PendingWork[T] = PendingWork(work, asyncio.get_running_loop().create_future())
        self._waiting.put(request)
        return await request.future

    def request_stop(self) -> None:
        if not self._closed:
            self._closed = True
            self._waiting.put(None)

    def wait_until_stopped(self) -> None:
        self._thread.join()
        self._conn.close()

    def _work(self) -> None:
        running, lost = True, None
        while running:
            group, running = self._next_group()
            if not group:
                continue
            if lost is None:
                lost = self._serve_or_lose(group)
            if lost is not None:
                # The thread keeps running, so that every request gets an answer.
                for request in group:
                    request.error = request.error or lost
            _answer(group)

    def _serve_or_lose(self, group: Sequence[PendingWork[Any]]) -> StoreLost | None:
        """Serve a group. Returns the error that makes the connection unusable, or None."""
        try:
            self._serve(self._conn, group)
        except StoreLost as error:
            lost = error
        except BaseException as error:
            lost = StoreLost(f"{self._path}: thread {self._thread.name} failed with {error!r}: restart")
            lost.__cause__ = error
        else:
            return None
        log.error("store lost", path=self._path, error=lost.detail)
        return lost

    def _next_group(self) -> tuple[list[PendingWork[Any]], bool]:
        first = self._waiting.get()
        if first is None:
            return [], False
        group = [first]
        while len(group) < self._group:
            try:
                following = self._waiting.get_nowait()
            except queue.Empty:
                break
            if following is None:
                return group, False
            group.append(following)
        return group, True


def _answer(group: Sequence[PendingWork[Any]]) -> None:
    """Resolve requests, and wake each event loop once, however many of its requests were served."""
    by_loop: dict[asyncio.AbstractEventLoop, list[PendingWork[Any]]] = {}
    for request in group:
        by_loop.setdefault(request.future.get_loop(), []).append(request)
    for loop, requests in by_loop.items():
        try:
            loop.call_soon_threadsafe(_resolve_all, requests)
        except RuntimeError:
            continue  # The loop was closed while its request was running.


def _resolve_all(requests: Sequence[PendingWork[Any]]) -> None:
    for request in requests:
        request.resolve()


class InlineDatabase(SqliteDatabase):
    """Runs work at once on the caller's event loop. For tests that control time, where threads would add chance."""

    def __init__(self, path: str, options: FileOptions, prepare: Callable[[sqlite3.Connection], object]) -> None:
        self.path = path
        self._conn = connect(path, options)
        with translated(path):
            prepare(self._conn)

    async def write(self, work: Work[T]) -> T:
        await asyncio.sleep(0)
        request: PendingWork[T] = PendingWork(work, asyncio.get_running_loop().create_future())
        commit_group(self._conn, [request], self.path)
        request.resolve()
        return await request.future

    async def read(self, work: Work[T]) -> T:
        await asyncio.sleep(0)
        with translated(self.path):
            return work(self._conn)

    async def close(self) -> None:
        self._conn.close()
