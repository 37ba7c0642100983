"""The way to Redis: batches of commands, each answered within a time limit or not at all."""

import asyncio
import math
from collections.abc import Callable, Sequence
from hashlib import sha1
from pathlib import Path
from typing import Any

import structlog
from hiredis import pack_command
from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError, ResponseError
from redis.exceptions import TimeoutError as SocketTimeout

from noonday.model.errors import BadSettings, Unavailable

log = structlog.get_logger("noonday.redis")
Command = tuple[str | bytes | int, ...]


def connect(
    url: str,
    *,
    timeout_sec: float = 2.0,
    username: str | None = None,
    password: str | None = None,
    ca_file: str | Path | None = None,
    cert_file: str | Path | None = None,
    key_file: str | Path | None = None,
    at_once: int = 8,
) -> "Connection":
    """The server at `redis://[[USER]:PASSWORD@]HOST[:PORT][/DB]`, or `rediss://` for TLS. Nothing is sent yet.

    With TLS the server's certificate has to be signed by an authority in `ca_file`, or one that this system trusts;
    `cert_file` and `key_file` are ours, if it asks for one. Up to `at_once` batches are under way at the same time, others
    wait. Raises BadSettings.
    """
    files = {"ssl_ca_certs": ca_file, "ssl_certfile": cert_file, "ssl_keyfile": key_file}
    tls = {name: str(path) for name, path in files.items() if path is not None}
    login = {"username": username, "password": password}
    _check(url, tls)
    try:
        pool = ConnectionPool.from_url(
            url,
            **{name: value for name, value in login.items() if value},
            **tls,
            protocol=2,
            socket_connect_timeout=timeout_sec,
            socket_timeout=None,
            # Whoever asks decides whether to ask again: the library's own retries would outlast every time limit.
            retry=Retry(NoBackoff(), 0),
        )
    except ValueError as error:
        raise BadSettings(f"the URL of Redis cannot be read: {error}") from error
    return Connection(pool, timeout_sec, at_once)


class Script:
    """A Lua file of this package, called by the hash of its text."""

    _sources: dict[str, str] = {}  # noqa: RUF012  # every script there is, for a server that forgot them

    def __init__(self, name: str) -> None:
        source = (Path(__file__).parent / "lua" / f"{name}.lua").read_text()
        self._hash = sha1(source.encode()).hexdigest()
        Script._sources[self._hash] = source

    def __call__(self, key: str, *arguments: str | bytes | int) -> Command:
        """The command that runs it. All keys it touches are in the slot of this one."""
        return ("EVALSHA", self._hash, 1, key, *arguments)

    @classmethod
    def loading(cls) -> list[Command]:
        return [("SCRIPT", "LOAD", source) for source in cls._sources.values()]


class Connection:
    """Belongs to the loop it is first used in."""

    def __init__(self, pool: ConnectionPool, timeout_sec: float, at_once: int) -> None:
        self._pool = pool
        self._slots = asyncio.Semaphore(at_once)
        self.timeout_sec = timeout_sec
        self.client: Redis = Redis(connection_pool=pool)
        """The library's client on the same connections. Whoever uses it sets the time limits."""

    async def run(self, commands: Sequence[Command], failing: type[Unavailable]) -> list[Any]:
        """Send all, then read all answers: one round trip.

        Raises `failing` if the server does not answer all of them in time, or answers one with an error. What was sent may
        have been done.
        """
        if not commands:
            return []
        try:
            async with asyncio.timeout(self.timeout_sec), self._slots:
                return await self._run(commands)
        except (RedisError, OSError) as error:
            raise failing(self._said(error)) from error

    async def ask(self, *command: str | bytes | int, failing: type[Unavailable]) -> Any:
        """One command alone."""
        (answer,) = await self.run([command], failing)
        return answer

    async def time_ms(self, failing: type[Unavailable] = Unavailable) -> int:
        """The server's clock."""
        seconds, micros = await self.ask("TIME", failing=failing)
        return int(seconds) * 1000 + int(micros) // 1000

    async def refuse_eviction(self) -> None:
        """Raises BadSettings if the server throws keys away when its memory is full: claims and revocations would be gone.

        A server that does not answer, or not this user, is taken for one that does not.
        """
        try:
            said: bytes = await self.ask("INFO", "memory", failing=Unavailable)
        except Unavailable as error:
            log.warning("cannot see the memory policy of redis", error=error.detail)
            return
        lines = (line.partition(":") for line in said.decode(errors="replace").splitlines())
        policy = {name: value for name, _, value in lines}.get("maxmemory_policy", "noeviction")
        if policy != "noeviction":
            raise BadSettings(
                f"Redis has maxmemory-policy {policy}: under pressure it throws away claims and revocations, and work starts"
                " twice; run CONFIG SET maxmemory-policy noeviction, and set the same in redis.conf"
            )

    async def listen(self, channel: str, joined: Callable[[], None], heard: Callable[[bytes], None]) -> None:
        """Hand on what is published, from the moment `joined` is called. Ends only by raising Unavailable."""
        try:
            async with asyncio.timeout(self.timeout_sec):
                connection = await self._connection()
            try:
                await self._hear(connection, channel, joined, heard)
            finally:
                await self._drop(connection)
        except (RedisError, OSError) as error:
            raise Unavailable(self._said(error)) from error

    async def close(self) -> None:
        await self.client.aclose()
        await self._pool.disconnect()

    async def _run(self, commands: Sequence[Command]) -> list[Any]:
        answers = await self._exchange(commands)
        forgotten = [at for at, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
        if forgotten:
            await self._exchange(Script.loading())
            again = await self._exchange([commands[at] for at in forgotten])
            for at, answer in zip(forgotten, again, strict=True):
                answers[at] = answer
        for answer in answers:
            if isinstance(answer, ResponseError):
                raise answer
        return answers

    async def _exchange(self, commands: Sequence[Command]) -> list[Any]:
        connection = await self._connection()
        try:
            # One write and plain reads: the library's pipeline costs six times as much for each command.
            await connection.send_packed_command(_packed(commands))
            answers = [await _read(connection) for _ in commands]
        except BaseException:
            # Answers may still come: nobody may take them for his own.
            await self._drop(connection)
            raise
        await self._pool.release(connection)
        return answers

    async def _hear(
        self, connection: AbstractConnection, channel: str, joined: Callable[[], None], heard: Callable[[bytes], None]
    ) -> None:
        await connection.send_packed_command(_packed([("SUBSCRIBE", channel)]))
        quiet = False
        while True:
            said = await connection.read_response(timeout=self.timeout_sec)
            if said is None:
                if quiet:
                    raise SocketTimeout("no sign of life from the server")
                # A server that is frozen or cut off looks like one that has nothing to say.
                await connection.send_packed_command(_packed([("PING",)]))
                quiet = True
                continue
            quiet = False
            if said[0] == b"message":
                heard(said[2])
            elif said[0] == b"subscribe":
                joined()

    async def _connection(self) -> AbstractConnection:
        connection: AbstractConnection = await self._pool.get_connection()  # type: ignore[no-untyped-call]
        return connection

    async def _drop(self, connection: AbstractConnection) -> None:
        await connection.disconnect(nowait=True)
        await self._pool.release(connection)

    def _said(self, error: Exception) -> str:
        place = self._pool.connection_kwargs
        where = place.get("path") or f"{place.get('host', 'localhost')}:{place.get('port', 6379)}"
        timed_out = isinstance(error, TimeoutError)
        return f"Redis at {where}: {f'no answer within {self.timeout_sec:g} s' if timed_out else error}"


def _packed(commands: Sequence[Command]) -> bytes:
    return b"".join([pack_command(command) for command in commands])  # type: ignore[arg-type]


async def _read(connection: AbstractConnection) -> Any:
    try:
        return await connection.read_response(timeout=math.inf)
    except ResponseError as error:
        return error


def _check(url: str, tls: dict[str, str]) -> None:
    if tls and not url.startswith("rediss://"):
        raise BadSettings("certificates are for a URL of Redis that begins with rediss://")
    for path in tls.values():
        if not Path(path).is_file():
            raise BadSettings(f"there is no file {path}")
