"""One file, one writer, group commit.

Everything that writes goes to one thread. It takes all requests that wait, runs each in a savepoint of its own inside one
transaction, syncs once, and only then answers: so a 201 or a started handler is always on disk, and a thousand requests cost
one sync. A request that raises undoes itself alone; a commit that fails (disk full, file gone) fails all of its group.

Python gives up its lock around every single step of a statement, and a busy neighbour takes it for milliseconds. So the
hot statements are few and large: a batch goes in as one JSON parameter and comes out as one JSON value.
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

from noonday.model.errors import BadData, NoondayError, StoreFailed, StoreLost, StoreUnavailable

log = structlog.get_logger("noonday.sqlite")
T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

MEMORY = ":memory:"
_GROUP = 64
_QUERY_LANES = 3
"""How many queries run side by side."""


@dataclass(frozen=True)
class FileOptions:
    synchronous: str = "FULL"
    cache_mb: int = 64
    busy_timeout_ms: int = 5_000


def connect(path: str, options: FileOptions, *, read_only: bool = False) -> sqlite3.Connection:
    """Open the file as the writer or as a reader. Raises StoreUnavailable in words that say what to do."""
    if sqlite3.sqlite_version_info < (3, 38):
        raise StoreUnavailable(f"SQLite {sqlite3.sqlite_version} is too old: Noonday needs 3.38 or later")
    with translated(path):
        if path != MEMORY and not Path(path).parent.is_dir():
            raise StoreUnavailable(f"cannot open {path}: the folder {Path(path).parent} does not exist")
        if path != MEMORY:
            _create_private(path)
        conn = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=256)
        conn.execute(f"PRAGMA busy_timeout = {options.busy_timeout_ms}")
        conn.execute(f"PRAGMA cache_size = {-options.cache_mb * 1024}")
        conn.execute("PRAGMA temp_store = MEMORY")
        if read_only:
            conn.execute("PRAGMA query_only = ON")
        else:
            conn.execute("PRAGMA journal_mode = WAL")
            conn.execute(f"PRAGMA synchronous = {options.synchronous}")
            conn.execute("PRAGMA journal_size_limit = 67108864")
            # Copying the log back costs two syncs: seldom, and then pages that changed often are copied once.
            conn.execute("PRAGMA wal_autocheckpoint = 16000")
        return conn


def _create_private(path: str) -> None:
    """Make the file if there is none, for its owner alone. SQLite gives its log and index files the same mode."""
    # If it cannot be made, opening it says so in better words.
    with suppress(OSError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


class translated:
    """SQLite's errors in our words."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, sqlite3.Error):
            raise translation_of(error, self.path) from error


_BAD_DATA = ("SQLITE_CONSTRAINT", "SQLITE_MISMATCH", "SQLITE_TOOBIG")
"""Errors that are about values."""
_FAILED = ("SQLITE_ERROR", "SQLITE_INTERNAL", "SQLITE_MISUSE", "SQLITE_CORRUPT")
"""Errors that another statement need not meet: what is not there or malformed, and pages that are damaged."""


def translation_of(error: sqlite3.Error, path: str) -> NoondayError:
    """Returns the error in our words, by the name that SQLite gives it."""
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


class Request(Generic[T]):
    """Work to be done in a transaction, and who waits for its answer."""

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


def commit_group(conn: sqlite3.Connection, requests: Sequence[Request[Any]], path: str) -> None:
    """Run the requests in one transaction, each in its savepoint, and sync. Afterwards each has an answer or an error.

    Raises StoreLost if the transaction can be neither committed nor rolled back: what comes next would be part of it.
    """
    try:
        with translated(path):
            conn.execute("BEGIN IMMEDIATE")
            for request in requests:
                _run_in_savepoint(conn, request, path)
            conn.execute("COMMIT")
    except NoondayError as error:
        _roll_back(conn, path, error)
        # A commit that fails says nothing about the data of any one request.
        not_now = error if isinstance(error, StoreUnavailable) else StoreUnavailable(error.detail)
        for request in requests:
            request.error = request.error or not_now


def _roll_back(conn: sqlite3.Connection, path: str, why: NoondayError) -> None:
    if not conn.in_transaction:
        return
    try:
        conn.execute("ROLLBACK")
    except sqlite3.Error as error:
        if conn.in_transaction:
            raise StoreLost(
                f"{path} can neither commit nor roll back ({why.detail}; then: {error}): check the disk and start again;"
                " nothing that was acknowledged is lost"
            ) from error


def _run_in_savepoint(conn: sqlite3.Connection, request: Request[Any], path: str) -> None:
    conn.execute("SAVEPOINT request")
    try:
        with translated(path):
            request.answer = request.work(conn)
        conn.execute("RELEASE request")
    except BaseException as error:
        request.error = error
        # SQLite itself undoes the whole transaction when the disk is full: then the group fails at its COMMIT.
        if conn.in_transaction:
            conn.execute("ROLLBACK TO request")
            conn.execute("RELEASE request")
        elif isinstance(error, StoreUnavailable):
            raise


class Database(ABC):
    """Where the driver's work runs."""

    path: str

    @abstractmethod
    async def write(self, work: Work[T]) -> T:
        """Run in a transaction; returns when it is synced to disk."""

    @abstractmethod
    async def read(self, work: Work[T]) -> T:
        """Run on a connection that cannot write. For what the engine needs: short, and one after the other."""

    async def query(self, work: Work[T]) -> T:
        """The same for what users ask for, which may take long: several run side by side, and hold up no `read`."""
        return await self.read(work)

    @abstractmethod
    async def close(self) -> None: ...


class ThreadedDatabase(Database):
    """A writer thread with group commit, a reader thread beside it, and some for queries."""

    def __init__(self, path: str, options: FileOptions, prepare: Callable[[sqlite3.Connection], None]) -> None:
        self.path = path
        writer = connect(path, options)
        with translated(path):
            prepare(writer)
        self._writer = _Lane(writer, path, self._write_group, "noonday-writer")
        self._reader = _Lane(connect(path, options, read_only=True), path, self._read_group, "noonday-reader")
        queries: queue.SimpleQueue[Request[Any] | None] = queue.SimpleQueue()
        small = replace(options, cache_mb=max(1, options.cache_mb // _QUERY_LANES))
        self._query_lanes = [
            _Lane(
                connect(path, small, read_only=True),
                path,
                self._read_group,
                f"noonday-query-{number}",
                waiting=queries,
                # Whoever takes several makes the last of them wait for the first.
                group=1,
            )
            for number in range(_QUERY_LANES)
        ]

    async def write(self, work: Work[T]) -> T:
        return await self._writer.run(work)

    async def read(self, work: Work[T]) -> T:
        return await self._reader.run(work)

    async def query(self, work: Work[T]) -> T:
        return await self._query_lanes[0].run(work)

    async def close(self) -> None:
        readers = [*self._query_lanes, self._reader]
        # All are told before any is waited for: of lanes that share a queue, any may take any word.
        for lane in readers:
            lane.tell_to_stop()
        for lane in readers:
            await asyncio.to_thread(lane.wait_until_stopped)
        self._writer.tell_to_stop()
        await asyncio.to_thread(self._writer.wait_until_stopped)

    def _write_group(self, conn: sqlite3.Connection, group: Sequence[Request[Any]]) -> None:
        commit_group(conn, group, self.path)

    def _read_group(self, conn: sqlite3.Connection, group: Sequence[Request[Any]]) -> None:
        for request in group:
            try:
                with translated(self.path):
                    request.answer = request.work(conn)
            except BaseException as error:
                request.error = error


class _Lane:
    """One connection, the thread that owns it, and those who wait for it."""

    def __init__(
        self,
        conn: sqlite3.Connection,
        path: str,
        serve: Callable[[sqlite3.Connection, Sequence[Request[Any]]], None],
        name: str,
        *,
        waiting: "queue.SimpleQueue[Request[Any] | None] | None" = None,
        group: int = _GROUP,
    ) -> None:
        """`waiting` is a queue that several lanes serve."""
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
        request: Request[T] = Request(work, asyncio.get_running_loop().create_future())
        self._waiting.put(request)
        return await request.future

    def tell_to_stop(self) -> None:
        if not self._closed:
            self._closed = True
            self._waiting.put(None)

    def wait_until_stopped(self) -> None:
        self._thread.join()
        self._conn.close()

    def _work(self) -> None:
        going, lost = True, None
        while going:
            group, going = self._next_group()
            if not group:
                continue
            if lost is None:
                lost = self._serve_or_lose(group)
            if lost is not None:
                # The thread goes on: whoever asks is answered, and nobody waits for ever.
                for request in group:
                    request.error = request.error or lost
            _answer(group)

    def _serve_or_lose(self, group: Sequence[Request[Any]]) -> StoreLost | None:
        """Returns why this connection cannot be used any more, if that is so."""
        try:
            self._serve(self._conn, group)
        except StoreLost as error:
            lost = error
        except BaseException as error:
            lost = StoreLost(f"{self._path}: its thread {self._thread.name} met {error!r}: start again")
            lost.__cause__ = error
        else:
            return None
        log.error("store lost", path=self._path, error=lost.detail)
        return lost

    def _next_group(self) -> tuple[list[Request[Any]], bool]:
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


def _answer(group: Sequence[Request[Any]]) -> None:
    """Wake each waiting loop once, however many of its requests were served."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Request[Any]]] = {}
    for request in group:
        by_loop.setdefault(request.future.get_loop(), []).append(request)
    for loop, requests in by_loop.items():
        try:
            loop.call_soon_threadsafe(_resolve_all, requests)
        except RuntimeError:
            continue  # the loop was closed while its request was under way


def _resolve_all(requests: Sequence[Request[Any]]) -> None:
    for request in requests:
        request.resolve()


class InlineDatabase(Database):
    """Everything at once on the caller's loop: for tests that own time, where a thread would be a source of chance."""

    def __init__(self, path: str, options: FileOptions, prepare: Callable[[sqlite3.Connection], None]) -> None:
        self.path = path
        self._conn = connect(path, options)
        with translated(path):
            prepare(self._conn)

    async def write(self, work: Work[T]) -> T:
        await asyncio.sleep(0)
        request: Request[T] = Request(work, asyncio.get_running_loop().create_future())
        commit_group(self._conn, [request], self.path)
        request.resolve()
        return await request.future

    async def read(self, work: Work[T]) -> T:
        await asyncio.sleep(0)
        with translated(self.path):
            return work(self._conn)

    async def close(self) -> None:
        self._conn.close()
