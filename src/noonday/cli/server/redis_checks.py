"""Checks of `noonday doctor` for Redis."""

from collections.abc import AsyncIterator, Iterator, Mapping

from noonday.cli.server.checks import CheckContext, Finding, Level
from noonday.cli.server.server_clock import check_server_clock
from noonday.drivers.redis.connection import Connection
from noonday.model.errors import BadSettings, SignalsUnavailable
from noonday.wiring.cluster.servers import redis_connection

OLDEST = 7
_PROBE = (
    "redis.call('SET', KEYS[1], 1, 'PX', 1000) redis.call('DEL', KEYS[1]) return redis.call('PUBLISH', KEYS[1], '')"
)


async def check_redis(context: CheckContext) -> AsyncIterator[Finding]:
    cluster = context.settings.cluster
    try:
        connection = redis_connection(context.settings)
    except BadSettings as error:  # the text after the colon may contain a part of the password
        fix = "write redis.url as redis://USER:PASSWORD@HOST:6379/0; in a password, / is %2F, @ is %40, : is %3A"
        yield Finding(Level.FAIL, "redis", error.detail.partition(":")[0], fix)
        return
    try:
        info = await _info(connection)
        for finding in _server(info):
            yield finding
        yield await _permissions(connection, cluster.name)
        yield await check_server_clock(
            "redis clock", lambda: connection.time_ms(SignalsUnavailable), cluster.max_clock_offset_sec
        )
    except SignalsUnavailable as error:
        yield Finding(Level.FAIL, "redis", error.detail, _fix_for(error.detail))
    finally:
        await connection.close()


async def _info(connection: Connection) -> dict[str, str]:
    text: bytes = await connection.ask("INFO", failing=SignalsUnavailable)
    lines = (line.partition(":") for line in text.decode(errors="replace").splitlines())
    return {name: value for name, _, value in lines if value}


def _fix_for(detail: str) -> str:
    low = detail.lower()
    if "noperm" in low or "permission" in low:
        return "allow this user INFO and TIME: ACL SETUSER NAME +info +time"
    if any(word in low for word in ("noauth", "wrongpass", "authentication", "invalid username", "password")):
        return "check user and password in redis.url (NOONDAY_REDIS_URL): redis://USER:PASSWORD@HOST:6379/0"
    if "certificate" in low or "ssl" in low:
        return "set redis.ca_file to the CA that signed the server's certificate; use `rediss://` only if the server uses TLS"
    return "start Redis, or correct redis.url (NOONDAY_REDIS_URL); for TLS the URL begins with rediss://"


def _server(info: Mapping[str, str]) -> Iterator[Finding]:
    version = info.get("redis_version", "0")
    if int(version.partition(".")[0]) < OLDEST:
        yield Finding(Level.FAIL, "redis", f"{version} is too old: 7 or later is needed", "upgrade the server")
    elif info.get("role") == "slave":
        detail = f"{version}: this is a replica of {info.get('master_host')} and accepts no writes"
        yield Finding(Level.FAIL, "redis", detail, "set redis.url (NOONDAY_REDIS_URL) to the primary")
    elif info.get("cluster_enabled") == "1":
        fix = "use a server without cluster mode, or one that has all slots"
        yield Finding(Level.WARN, "redis", f"{version}, in cluster mode: Noonday connects to one server only", fix)
    else:
        yield Finding(Level.OK, "redis", version)
    yield _memory(info)
    yield _append_file(info)


def _memory(info: Mapping[str, str]) -> Finding:
    policy, limit = info.get("maxmemory_policy", "noeviction"), info.get("maxmemory_human", "0B")
    used = info.get("used_memory_human", "?")
    if policy != "noeviction":
        detail = f"maxmemory-policy is {policy}: when memory is full Redis evicts claims and revocations, and work starts twice"
        return Finding(
            Level.FAIL, "memory", detail, "run CONFIG SET maxmemory-policy noeviction, and set the same in redis.conf"
        )
    return Finding(Level.OK, "memory", f"{used} used, {'no limit' if limit == '0B' else f'{limit} allowed'}; {policy}")


def _append_file(info: Mapping[str, str]) -> Finding:
    if info.get("aof_enabled") == "1":
        return Finding(Level.OK, "append file", f"on, {info.get('aof_last_write_status', 'ok')}")
    detail = (
        "appendonly is off: after a restart Redis is empty. That loses no job: starts pause for seconds while it is filled "
        "from the database, and jobs that started in those seconds may run twice"
    )
    return Finding(Level.WARN, "append file", detail, "run CONFIG SET appendonly yes, and set the same in redis.conf")


async def _permissions(connection: Connection, name: str) -> Finding:
    try:
        await connection.ask("EVAL", _PROBE, 1, f"{name}:doctor", failing=SignalsUnavailable)
    except SignalsUnavailable as error:
        fix = f"ACL SETUSER NAME ~{name}:* &{name}:* +@all -@dangerous +info +time"
        return Finding(Level.FAIL, "redis rights", error.detail, fix)
    return Finding(Level.OK, "redis rights", f"can write keys and channels that begin with {name}:")
