"""A cluster whose store is a real PostgreSQL: the real driver and the real functions, in virtual time.

Simulated processes have no sockets. Each statement is one round trip on the simulated network. The server's part of it is a
call to a thread that talks to PostgreSQL: virtual time stands still until the answer is there. So the seed determines the
order of statements, and with it the run. `clock_ms()` is the virtual clock.

A statement that meets a lock must not wait for it in real time, because the owner of the lock stands still. The statement
gives up after a moment, and is tried again in virtual time for as long as the driver would have waited.
"""

import asyncio
import os
import sqlite3
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import Context
from dataclasses import replace
from functools import cached_property
from random import Random
from typing import Any, TypeVar
from uuid import UUID

import asyncpg
import psycopg

from noonday.drivers.postgres.connection import PostgresDatabase, PostgresOptions, connect, translated
from noonday.drivers.postgres.migrations import migrate
from noonday.drivers.postgres.store import store_of
from noonday.model.errors import StoreUnavailable
from noonday.wiring.drivers import Drivers
from tests.scenarios.cluster.store import COPIED, UNFINISHED, new_copy, plain
from tests.simulation.checker import check_cluster, check_commit
from tests.simulation.cluster import ClusterSimulation
from tests.simulation.kernel import START_MS, FaultPlan, Process, SimClock
from tests.simulation.load import Load
from tests.simulation.observing import PRUNED as EVER_PRUNED
from tests.simulation.servers import STORE, Network
from tests.support.servers_up import postgres_url

T = TypeVar("T")
REAL_LOCK_SEC = 0.02
"""How long a statement waits for a lock in real time, during which no process can release it."""
LOCK_SEC = 2.0
IDLE_IN_TRANSACTION_SEC = 5.0
PRUNED = tuple(table for table in EVER_PRUNED if table in COPIED)
DAY_MS, DAYS = 86_400_000, 6
"""Days with a partition from the start, so that each run finds the same tables."""
CHECK_EVERY = 150
"""Statements between two checks of the store."""
PASSING: tuple[type[asyncpg.PostgresError], ...] = (
    asyncpg.InternalServerError,
    asyncpg.PostgresIOError,
    asyncpg.FeatureNotSupportedError,
    asyncpg.UndefinedFunctionError,
    asyncpg.TooManyConnectionsError,
    asyncpg.AdminShutdownError,
    asyncpg.SerializationError,
    asyncpg.OutOfMemoryError,
    asyncpg.DiskFullError,
)
"""Errors of the server that are not about the data. They pass."""

_PREPARE = """
CREATE OR REPLACE FUNCTION clock_ms() RETURNS bigint LANGUAGE sql VOLATILE
    AS $$ SELECT current_setting('noonday.sim_ms')::bigint $$;
CREATE TABLE IF NOT EXISTS seen (
    at_ms bigint, id uuid, state int, dispatch int, fired bool, buffered bool, worker text, place bigserial
);
CREATE OR REPLACE FUNCTION note_seen() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO seen VALUES (
        clock_ms(), NEW.id, NEW.state, NEW.dispatch, NEW.fired_ms IS NOT NULL, NEW.buffered::int <> 0, NEW.worker_id
    );
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER seen_insert AFTER INSERT ON executions FOR EACH ROW EXECUTE FUNCTION note_seen();
CREATE OR REPLACE TRIGGER seen_update AFTER UPDATE OF state, dispatch, fired_ms, buffered, worker_id ON executions
    FOR EACH ROW EXECUTE FUNCTION note_seen();
CREATE TABLE IF NOT EXISTS resumed (job text, until_ms bigint, at_ms bigint);
CREATE OR REPLACE FUNCTION note_resumed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO resumed VALUES (OLD.id::text, OLD.paused_until_ms, clock_ms());
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER note_resumed AFTER UPDATE OF state ON jobs
    FOR EACH ROW WHEN (OLD.state = 1 AND NEW.state = 0) EXECUTE FUNCTION note_resumed();
CREATE OR REPLACE FUNCTION note_pruned() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format(
        'INSERT INTO pruned_%1$s SELECT (jsonb_populate_record(NULL::%1$s, $1)).*, clock_ms()', TG_ARGV[0]
    ) USING to_jsonb(OLD);
    RETURN NULL;
END $$;
"""
_NOTE_PRUNED = """
CREATE TABLE IF NOT EXISTS pruned_{0} AS SELECT *, 0::bigint AS pruned_ms FROM {0} WHERE false;
CREATE OR REPLACE TRIGGER pruned_{0} AFTER DELETE ON {0} FOR EACH ROW EXECUTE FUNCTION note_pruned('{0}');
"""
_STORED = """
SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = current_schema AND c.relkind = 'r'
"""
_TABLES = """
SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = current_schema AND c.relkind IN ('r', 'p') AND NOT c.relispartition
    AND c.relname NOT IN ('migrations', 'partitions')
ORDER BY c.relname LIKE 'pruned_%'
"""


class RealServer:
    """PostgreSQL, reached through a thread with its own loop. One server for all runs of a test process."""

    def __init__(self) -> None:
        self.options = PostgresOptions(postgres_url(), schema=f"sim_{os.getpid()}", lock_sec=REAL_LOCK_SEC)
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="simulated-postgres", daemon=True).start()
        self._idle: list[asyncpg.Connection] = []
        self._set_ms: dict[asyncpg.Connection, int] = {}
        self.view = psycopg.connect(self.options.url, autocommit=True)
        self._drop_those_of_the_dead()
        self.call(self._migrate())
        self.view.execute(f'SET search_path = "{self.options.schema}"')
        self.view.execute("SET lock_timeout = '5s'")
        self.view.execute(_PREPARE)  # type: ignore[arg-type]
        for table in PRUNED:
            self.view.execute(_NOTE_PRUNED.format(table))  # type: ignore[arg-type]
        self.view.execute("SELECT make_partitions(%s, %s)", (START_MS - DAY_MS, DAYS))
        for (table,) in self.view.execute(_STORED).fetchall():
            self.view.execute(f'ALTER TABLE "{table}" SET (autovacuum_enabled = off)')  # type: ignore[arg-type]
        self._tables = [name for (name,) in self.view.execute(_TABLES)]

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def acquire(self) -> asyncpg.Connection:
        """Return a session. A session that is not in use any more is as good as a new one."""
        return self._idle.pop() if self._idle else self.call(self._connect())

    def release(self, session: asyncpg.Connection) -> None:
        """Release the session of a process that gave it up or died: uncommitted work is rolled back."""
        if session.is_closed():
            self._set_ms.pop(session, None)
            return
        try:
            if session.is_in_transaction():
                self.control(session, "ROLLBACK")
            self._idle.append(session)
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            session.terminate()

    def ask(self, session: asyncpg.Connection, now_ms: int, method: str, *args: Any, **more: Any) -> Any:
        return self.call(self._ask(session, now_ms, method, args, more))

    def control(self, session: asyncpg.Connection, words: str) -> None:
        """Begin or end a transaction, or a part of it. A rollback undoes the setting of the clock, too."""
        self._set_ms.pop(session, None)
        self.call(session.execute(words))

    def terminate(self, session: asyncpg.Connection) -> None:
        self.view.execute("SELECT pg_terminate_backend(%s, 5000)", (session.get_server_pid(),))

    def empty(self) -> None:
        """Delete the data of the former run."""
        for session in list(self._set_ms):
            if session not in self._idle:
                self.release(session)
        self.view.execute("SET noonday.sim_ms = 0")
        tables = ", ".join(f'"{name}"' for name in self._tables)
        self.view.execute(f"TRUNCATE {tables} RESTART IDENTITY")  # type: ignore[arg-type]
        self.view.execute("TRUNCATE partitions; INSERT INTO partitions SELECT n, 0, '' FROM generate_series(0, 255) n")

    async def _ask(
        self, session: asyncpg.Connection, now_ms: int, method: str, args: Sequence[Any], more: Mapping[str, Any]
    ) -> Any:
        if self._set_ms.get(session) != now_ms:
            await session.execute(f"SET noonday.sim_ms = {now_ms}")
            self._set_ms[session] = now_ms
        return await getattr(session, method)(*args, **more)

    async def _connect(self) -> asyncpg.Connection:
        session: asyncpg.Connection = await connect(self.options)
        await session.execute("SET synchronous_commit = off")  # the server itself does not die here
        return session

    async def _migrate(self) -> None:
        database = await PostgresDatabase.open(self.options)
        await migrate(database)
        await database.close()

    def _drop_those_of_the_dead(self) -> None:
        for (schema,) in self.view.execute("SELECT nspname FROM pg_namespace WHERE nspname ~ '^sim_[0-9]+$'"):
            pid = schema.removeprefix("sim_")
            if not os.path.exists(f"/proc/{pid}") or schema == self.options.schema:
                self.view.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")


class SimSession:
    """A session of one process: each statement is a round trip on the simulated network."""

    def __init__(self, database: "SimPostgres", real: asyncpg.Connection) -> None:
        self._database = database
        self._real: asyncpg.Connection | None = real
        self._in_transaction = False
        self._alarm: asyncio.TimerHandle | None = None

    @property
    def is_usable(self) -> bool:
        return self._real is not None and not self._real.is_closed()

    @property
    def real(self) -> asyncpg.Connection:
        if self._real is None:
            raise asyncpg.InterfaceError("the session is closed")
        return self._real

    async def fetch(self, query: str, *parameters: Any) -> Any:
        rows = await self._ask("fetch", query, *parameters)
        return rows if "ORDER BY" in query else self._database.in_any_order(rows)

    async def fetchrow(self, query: str, *parameters: Any) -> Any:
        return await self._ask("fetchrow", query, *parameters)

    async def fetchval(self, query: str, *parameters: Any) -> Any:
        return await self._ask("fetchval", query, *parameters)

    async def execute(self, query: str, *parameters: Any) -> Any:
        return await self._ask("execute", query, *parameters)

    async def copy_records_to_table(self, table: str, **more: Any) -> Any:
        return await self._ask("copy_records_to_table", table, **more)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        await self._control("BEGIN")
        self._in_transaction = True
        try:
            yield
        except BaseException:
            self._in_transaction = False
            if self.is_usable:
                await self._control("ROLLBACK")
            raise
        self._in_transaction = False
        await self._control("COMMIT")

    def drop(self) -> None:
        """Drop the session: the process is dead, or has lost it."""
        if self._real is not None:
            self._database.server.release(self._real)
            self._real = None
        self._silence()

    async def _control(self, words: str) -> None:
        self._silence()
        await self._database.round_trip(self, lambda: self._database.server.control(self.real, words))

    async def _ask(self, method: str, *args: Any, **more: Any) -> Any:
        clock = self._database.clock
        give_up_at = clock.monotonic() + LOCK_SEC
        while True:
            try:
                return await self._database.round_trip(self, lambda: self._do(method, *args, **more))
            except asyncpg.LockNotAvailableError:
                if clock.monotonic() >= give_up_at:
                    raise
                await clock.sleep(0.05)

    def _do(self, method: str, *args: Any, **more: Any) -> Any:
        """Execute work at the server.

        A statement that gives up for a lock must not undo the earlier statements of its transaction.
        """
        server, now_ms = self._database.server, self._database.now_ms()
        self._silence()
        if not self._in_transaction:
            return server.ask(self.real, now_ms, method, *args, **more)
        server.control(self.real, "SAVEPOINT statement")
        try:
            answer = server.ask(self.real, now_ms, method, *args, **more)
        except asyncpg.LockNotAvailableError:
            server.control(self.real, "ROLLBACK TO statement")
            raise
        loop = asyncio.get_running_loop()
        self._alarm = loop.call_later(IDLE_IN_TRANSACTION_SEC, self.drop, context=Context())
        return answer

    def _silence(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None


class SimPostgres(PostgresDatabase):
    """The sessions of one simulated process."""

    def __init__(self, simulation: "PostgresSimulation", process: Process, clock: SimClock) -> None:
        self.options = simulation.server.options
        self.server = simulation.server
        self.clock = clock
        self.now_ms = simulation.world.now_ms
        self._simulation = simulation
        self._network: Network = simulation.network
        self._process = process
        self._shuffled = Random(f"rows/{process}/{simulation.world.seed}")
        self._idle: list[SimSession] = []
        self.sessions: list[SimSession] = []

    @asynccontextmanager
    async def session(self) -> AsyncIterator[SimSession]:
        with translated():
            session = self._idle.pop() if self._idle else await self._open()
            try:
                yield session
            finally:
                if session.is_usable and session.real.is_in_transaction():
                    session.drop()  # its COMMIT or ROLLBACK failed; the real pool rolls back what it takes back
                elif session.is_usable:
                    self._idle.append(session)

    async def round_trip(self, session: SimSession | None, work: Callable[[], T]) -> T:
        def at_the_server() -> T:
            self._simulation.fail_sometimes()
            try:
                return work()
            finally:
                self._simulation.look_sometimes()

        try:
            return await self._network.call(
                self._process, self.clock, STORE, at_the_server, StoreUnavailable, "statement"
            )
        except StoreUnavailable:
            if session is not None:
                session.drop()
            raise

    def in_any_order(self, rows: Sequence[Any]) -> Sequence[Any]:
        """Return rows whose order no query states. The server returns them as it stored them, which no seed determines."""
        return self._shuffled.sample(ordered := sorted(rows, key=repr), len(ordered))

    def drop_all(self) -> None:
        for session in self.sessions:
            session.drop()

    async def close(self) -> None:
        self.drop_all()

    async def _open(self) -> SimSession:
        session = SimSession(self, await self.round_trip(None, self.server.acquire))
        self.sessions = [each for each in self.sessions if each.is_usable] + [session]
        return session


class _Answer:
    def __init__(self, rows: Sequence[Any]) -> None:
        self._rows = rows

    def __iter__(self) -> Any:
        return iter(self._rows)

    def fetchall(self) -> list[Any]:
        return list(self._rows)

    def fetchone(self) -> Any:
        return self._rows[0] if self._rows else None


class _View:
    """The store as the director reads it, with the same methods as for SQLite."""

    def __init__(self, connection: "psycopg.Connection[Any]") -> None:
        self._connection = connection

    def execute(self, query: str, parameters: Sequence[Any] = ()) -> _Answer:
        rows = self._connection.execute(query.replace("?", "%s"), parameters).fetchall()  # type: ignore[arg-type]
        return _Answer([_plain(row) for row in rows])

    def close(self) -> None:
        """Do nothing: the connection serves all runs."""


class PostgresSimulation(ClusterSimulation):
    def __init__(
        self,
        seed: int,
        *,
        faults: FaultPlan | None = None,
        concurrency: int = 8,
        load: Load | None = None,
        errors: float = 0.0,
    ) -> None:
        super().__init__(seed, faults=faults, concurrency=concurrency, load=load)
        self.roles = {"api": 1, "scheduler": 2, "recorder": 1, "worker": 2}
        self.errors = errors
        """The chance that a statement fails for a temporary reason."""
        self.server = _server()
        self.server.empty()
        self.disk.conn.close()
        self.disk.conn = _View(self.server.view)  # type: ignore[assignment]
        self._error_random = Random(f"errors/{seed}")
        self._databases: dict[str, SimPostgres] = {}
        self._statements = 0

    @cached_property
    def _copy(self) -> sqlite3.Connection:
        return self._copied(dict.fromkeys(COPIED, "true"))

    def _drivers(self, process: Process, clock: SimClock, on_placed: Callable[[], None]) -> Drivers:
        drivers = super()._drivers(process, clock, on_placed)
        database = self._databases[str(process)] = SimPostgres(self, process, clock)
        store = store_of(database, self.settings.scheduler.lead_ms)
        return replace(
            drivers,
            jobs=store.jobs,
            child_jobs=store.child_jobs,
            firing=store.firing,
            executions=store.executions,
            query_store=store.query_store,
            execution_search=store.execution_search,
            settings_store=store.settings_store,
            workload=store.workload,
            endpoints=store.endpoints,
            alerts=store.alerts,
            notices=store.notices,
            users=store.users,
            provider_accounts=store.provider_accounts,
            operations=store.operations,
            selection=store.selection,
        )

    async def start(self, name: str) -> None:
        await super().start(name)
        process = self.processes[name]
        self._watchers = [*getattr(self, "_watchers", []), asyncio.create_task(self._bury(process))]

    async def _bury(self, process: Process) -> None:
        """Let the server notice that a client is gone."""
        await process.wait_dead()
        self._databases.pop(str(process)).drop_all()

    def fail_sometimes(self) -> None:
        if self.errors and self.world.faults is not None and self._error_random.random() < self.errors:
            kind = self._error_random.choice(PASSING)
            now_ms = self.world.now_ms()
            self.history.cuts.append(("*", STORE, now_ms, now_ms + 1))
            self.world.note(f"a statement fails with {kind.__name__}")
            raise kind("a passing error of the simulation")

    def look_sometimes(self) -> None:
        self._statements += 1
        if self._statements % CHECK_EVERY == 0 and not self.disk.problems:
            copy = self._copied(UNFINISHED)
            self.disk.problems += list(check_commit(copy, self.disk.forced))
            copy.close()

    async def fault(self) -> None:
        """Terminate a backend, or cause any other fault of a cluster."""
        if self.random.random() < 0.5:
            await super().fault()
            return
        names = sorted(name for name, database in self._databases.items() if database.sessions)
        if names:
            name = self.random.choice(names)
            session = self.random.choice(self._databases[name].sessions)
            now_ms = self.world.now_ms()
            self.history.cuts.append((name.split("#")[0], STORE, now_ms, now_ms + 1))
            self.world.note(f"a backend of {name} is terminated")
            if session.is_usable:
                self.server.terminate(session.real)

    async def quiet(self, limit_sec: float = 500) -> None:
        """Wait for quiet. The last recovery mechanism needs six minutes."""
        await super().quiet(limit_sec)

    def run(self, director: Callable[[], Awaitable[None]]) -> list[str]:
        self.direct(director)
        for database in self._databases.values():
            database.drop_all()
        self.disk.conn = self._copy
        found = check_cluster(self.disk.conn, self.history, self.world)
        return [*self.disk.problems, *found, *self.check_times()]

    def _copied(self, chosen: Mapping[str, str]) -> sqlite3.Connection:
        """Copy the tables that the checker reads, as of one commit."""
        copy = new_copy()
        with self.server.view.transaction():
            self.server.view.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            for table, which in chosen.items():
                names = [row[1] for row in copy.execute(f"PRAGMA table_info({table})")]
                words = f"SELECT {', '.join(map(plain, names))} FROM {table} WHERE {which}"
                rows = self.server.view.execute(words).fetchall()  # type: ignore[arg-type]
                places = ", ".join("?" * len(names))
                copy.executemany(f"INSERT INTO {table} ({', '.join(names)}) VALUES ({places})", rows)
            for table in PRUNED if "decisions" in chosen else ():
                names = [row[1] for row in copy.execute(f"PRAGMA table_info({table})")]
                words = f"SELECT {', '.join(map(plain, names))}, pruned_ms FROM pruned_{table}"
                rows = self.server.view.execute(words).fetchall()  # type: ignore[arg-type]
                copy.execute(f"CREATE TEMP TABLE pruned_{table} AS SELECT *, 0 AS pruned_ms FROM {table} WHERE false")
                copy.executemany(
                    f"INSERT INTO pruned_{table} VALUES ({', '.join('?' * (len(names) + 1))})", map(_plain, rows)
                )
            copy.execute("CREATE TEMP TABLE resumed (job, until_ms, at_ms)")
            rows = self.server.view.execute("SELECT job, until_ms, at_ms FROM resumed").fetchall()
            copy.executemany("INSERT INTO resumed VALUES (?, ?, ?)", rows)
            columns = "at_ms, id::text, state, dispatch, fired::int, buffered::int, worker"
            copy.execute("CREATE TEMP TABLE seen (at_ms, id, state, dispatch, fired, buffered, worker)")
            rows = self.server.view.execute(f"SELECT {columns} FROM seen ORDER BY place").fetchall()  # type: ignore[arg-type]
            copy.executemany("INSERT INTO seen VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        return copy


def _plain(row: Sequence[Any]) -> tuple[Any, ...]:
    """Return a row as SQLite keeps it, with identifiers as text."""
    return tuple(str(each) if isinstance(each, UUID) else each for each in row)


_servers: list[RealServer] = []


def _server() -> RealServer:
    if not _servers:
        _servers.append(RealServer())
    return _servers[0]
