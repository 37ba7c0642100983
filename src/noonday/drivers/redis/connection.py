"""Connection to Redis: sends batches of commands, each with a timeout."""

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
from redis.exceptions import ConnectionError as ConnectionLost
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
    """Return a connection to `redis://[[USER]:PASSWORD@]HOST[:PORT][/DB]`, or `rediss://` for TLS. Sends nothing yet.

    With TLS, an authority in `ca_file`, or one that this system trusts, must have signed the server's certificate. `cert_file`
    and `key_file` are the client's certificate, if the server asks for one. Up to `at_once` batches are in flight at the same
    time; others wait. Raises BadSettings.
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
            # The caller decides whether to retry: the library's own retries would outlast every timeout.
            retry=Retry(NoBackoff(), 0),
        )
    except ValueError as error:
        raise BadSettings(f"invalid redis.url: {error}") from error
    return Connection(pool, timeout_sec, at_once)


class Script:
    """A Lua file of this package, called by the hash of its text."""

    _sources: dict[str, str] = {}  # noqa: RUF012  # all scripts by hash, for a server that lost them

    def __init__(self, name: str) -> None:
        source = (Path(__file__).parent / "lua" / f"{name}.lua").read_text()
        self._hash = sha1(source.encode()).hexdigest()
        Script._sources[self._hash] = source

    def __call__(self, key: str, *arguments: str | bytes | int) -> Command:
        """Return the command that runs the script. All keys that the script touches are in the slot of `key`."""
        return ("EVALSHA", self._hash, 1, key, *arguments)

    @classmethod
    def load_commands(cls) -> list[Command]:
        return [("SCRIPT", "LOAD", source) for source in cls._sources.values()]


class Connection:
    """Pool of connections to one server. It belongs to the event loop in which it is first used."""

    def __init__(self, pool: ConnectionPool, timeout_sec: float, at_once: int) -> None:
        self._pool = pool
        self._slots = asyncio.Semaphore(at_once)
        self.timeout_sec = timeout_sec
        self.client: Redis = Redis(connection_pool=pool)
        """The library's client on the same connections. Callers set their own timeouts."""

    async def run(self, commands: Sequence[Command], failing: type[Unavailable]) -> list[Any]:
        """Send all commands, then read all answers: one round trip.

        Raises `failing` if the server does not answer all of them in time, or answers one with an error. The commands may have
        been executed.
        """
        if not commands:
            return []
        try:
            async with asyncio.timeout(self.timeout_sec), self._slots:
                return await self._run(commands)
        except (RedisError, OSError) as error:
            raise failing(self._describe(error)) from error

    async def ask(self, *command: str | bytes | int, failing: type[Unavailable]) -> Any:
        """Send one command and return its answer. Raises `failing`, as `run` does."""
        (answer,) = await self.run([command], failing)
        return answer

    async def time_ms(self, failing: type[Unavailable] = Unavailable) -> int:
        """Return the time of the server's clock."""
        seconds, micros = await self.ask("TIME", failing=failing)
        return int(seconds) * 1000 + int(micros) // 1000

    async def refuse_eviction(self) -> None:
        """Raise BadSettings if the server evicts keys when its memory is full: claims and revocations would be lost.

        If the server does not answer, or denies this user the question, the check passes.
        """
        try:
            info: bytes = await self.ask("INFO", "memory", failing=Unavailable)
        except Unavailable as error:
            log.warning("redis memory policy unknown", error=error.detail)
            return
        lines = (line.partition(":") for line in info.decode(errors="replace").splitlines())
        policy = {name: value for name, _, value in lines}.get("maxmemory_policy", "noeviction")
        if policy != "noeviction":
            raise BadSettings(
                f"Redis has maxmemory-policy {policy}: when its memory is full it evicts claims and revocations, and work"
                " starts twice; run CONFIG SET maxmemory-policy noeviction, and set the same in redis.conf"
            )

    async def listen(
        self, channel: str, on_subscribed: Callable[[], None], on_message: Callable[[bytes], None]
    ) -> None:
        """Pass published messages to `on_message`, from the call of `on_subscribed` on. Ends only by raising Unavailable."""
        try:
            async with asyncio.timeout(self.timeout_sec):
                connection = await self._connection()
            transport = _transport_of(connection)
            try:
                await self._receive(connection, channel, on_subscribed, on_message)
            finally:
                await self._drop(connection, transport)
        except (RedisError, OSError) as error:
            raise Unavailable(self._describe(error)) from error

    async def close(self) -> None:
        await self.client.aclose()
        await self._pool.disconnect()

    async def _run(self, commands: Sequence[Command]) -> list[Any]:
        answers = await self._exchange(commands)
        unknown = [at for at, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
        if unknown:
            await self._exchange(Script.load_commands())
            again = await self._exchange([commands[at] for at in unknown])
            for at, answer in zip(unknown, again, strict=True):
                answers[at] = answer
        for answer in answers:
            if isinstance(answer, ResponseError):
                raise answer
        return answers

    async def _exchange(self, commands: Sequence[Command]) -> list[Any]:
        connection = await self._connection()
        transport = _transport_of(connection)
        try:
            # One write and plain reads: the library's pipeline costs six times as much per command.
            await connection.send_packed_command(_packed(commands))
            answers = [await _read(connection) for _ in commands]
        except BaseException:
            # Answers may still arrive, and must not be read as answers to later commands.
            await self._drop(connection, transport)
            raise
        await self._pool.release(connection)
        return answers

    async def _receive(
        self,
        connection: AbstractConnection,
        channel: str,
        on_subscribed: Callable[[], None],
        on_message: Callable[[bytes], None],
    ) -> None:
        await connection.send_packed_command(_packed([("SUBSCRIBE", channel)]))
        pinged = False
        while True:
            reply = await connection.read_response(timeout=self.timeout_sec)
            if reply is None:
                if pinged:
                    raise SocketTimeout("no answer to PING")
                # A server that is frozen or cut off looks like one that has no messages.
                await connection.send_packed_command(_packed([("PING",)]))
                pinged = True
                continue
            pinged = False
            if reply[0] == b"message":
                on_message(reply[2])
            elif reply[0] == b"subscribe":
                on_subscribed()

    async def _connection(self) -> AbstractConnection:
        connection: AbstractConnection = await self._pool.get_connection()  # type: ignore[no-untyped-call]
        return connection

    async def _drop(self, connection: AbstractConnection, transport: asyncio.WriteTransport) -> None:
        # The library only closes it, which waits until the server has read what is buffered and has answered the end of TLS.
        transport.abort()
        await connection.disconnect(nowait=True)
        await self._pool.release(connection)

    def _describe(self, error: Exception) -> str:
        options = self._pool.connection_kwargs
        address = options.get("path") or f"{options.get('host', 'localhost')}:{options.get('port', 6379)}"
        timed_out = isinstance(error, TimeoutError)
        return f"Redis at {address}: {f'no answer within {self.timeout_sec:g} s' if timed_out else error}"


def _packed(commands: Sequence[Command]) -> bytes:
    return b"".join([pack_command(command) for command in commands])  # type: ignore[arg-type]


def _transport_of(connection: AbstractConnection) -> asyncio.WriteTransport:
    writer = connection._writer
    if writer is None:
        raise ConnectionLost("closed by the server")
    return writer.transport


async def _read(connection: AbstractConnection) -> Any:
    try:
        return await connection.read_response(timeout=math.inf)
    except ResponseError as error:
        return error


def _check(url: str, tls: dict[str, str]) -> None:
    if tls and not url.startswith("rediss://"):
        raise BadSettings("if certificates are set, redis.url must begin with rediss://")
    for path in tls.values():
        if not Path(path).is_file():
            raise BadSettings(f"no such file for the certificates of Redis, {path}")
