"""Checks of `noonday doctor` for Redis."""

from collections.abc import AsyncIterator, Iterator, Mapping

from noonday.cli.checks import Finding, Level, Patient
from noonday.cli.server_clock import check_server_clock
from noonday.drivers.redis.connection import Connection
from noonday.model.errors import BadSettings, SignalsUnavailable
from noonday.wiring.cluster import redis_connection

OLDEST = 7
_TRY = "redis.call('SET', KEYS[1], 1, 'PX', 1000) redis.call('DEL', KEYS[1]) return redis.call('PUBLISH', KEYS[1], '')"


async def check_redis(patient: Patient) -> AsyncIterator[Finding]:
    cluster = patient.settings.cluster
    try:
        connection = redis_connection(patient.settings)
    except BadSettings as error:  # the text after the colon may contain a part of the password
        fix = "write it as redis://USER:PASSWORD@HOST:6379/0; in a password, / is %2F, @ is %40, : is %3A"
        yield Finding(Level.FAIL, "redis", error.detail.partition(":")[0], fix)
        return
    try:
        told = await _info(connection)
        for finding in _server(told):
            yield finding
        yield await _rights(connection, cluster.name)
        yield await check_server_clock(
            "redis clock", lambda: connection.time_ms(SignalsUnavailable), cluster.max_clock_offset_sec
        )
    except SignalsUnavailable as error:
        yield Finding(Level.FAIL, "redis", error.detail, _mend(error.detail))
    finally:
        await connection.close()


async def _info(connection: Connection) -> dict[str, str]:
    said: bytes = await connection.ask("INFO", failing=SignalsUnavailable)
    lines = (line.partition(":") for line in said.decode(errors="replace").splitlines())
    return {name: value for name, _, value in lines if value}


def _mend(detail: str) -> str:
    low = detail.lower()
    if "noperm" in low or "permission" in low:
        return "let this user ask INFO and TIME: ACL SETUSER NAME +info +time"
    if any(word in low for word in ("noauth", "wrongpass", "authentication", "invalid username", "password")):
        return "check user and password in redis.url (NOONDAY_REDIS_URL): redis://USER:PASSWORD@HOST:6379/0"
    if "certificate" in low or "ssl" in low:
        return (
            "redis.ca_file has to name who signed the server's certificate; `rediss://` is for servers that speak TLS"
        )
    return "start it, or name the right one in redis.url (NOONDAY_REDIS_URL); for TLS the URL begins with rediss://"


def _server(told: Mapping[str, str]) -> Iterator[Finding]:
    version = told.get("redis_version", "0")
    if int(version.partition(".")[0]) < OLDEST:
        yield Finding(Level.FAIL, "redis", f"{version}: 7 is needed", "upgrade the server")
    elif told.get("role") == "slave":
        detail = f"{version}, which is a replica of {told.get('master_host')} and takes no writes"
        yield Finding(Level.FAIL, "redis", detail, "name the primary in redis.url (NOONDAY_REDIS_URL)")
    elif told.get("cluster_enabled") == "1":
        fix = "name a server of its own; or see that the one in the URL has all slots"
        yield Finding(Level.WARN, "redis", f"{version}, in cluster mode: Noonday speaks with one server only", fix)
    else:
        yield Finding(Level.OK, "redis", version)
    yield _memory(told)
    yield _file(told)


def _memory(told: Mapping[str, str]) -> Finding:
    policy, limit = told.get("maxmemory_policy", "noeviction"), told.get("maxmemory_human", "0B")
    used = told.get("used_memory_human", "?")
    if policy != "noeviction":
        detail = f"maxmemory-policy is {policy}: under pressure it throws away claims and flags, and work starts twice"
        return Finding(
            Level.FAIL, "memory", detail, "CONFIG SET maxmemory-policy noeviction, and the same in redis.conf"
        )
    return Finding(Level.OK, "memory", f"{used} used, {'no limit' if limit == '0B' else f'{limit} allowed'}; {policy}")


def _file(told: Mapping[str, str]) -> Finding:
    if told.get("aof_enabled") == "1":
        return Finding(Level.OK, "append file", f"on, {told.get('aof_last_write_status', 'ok')}")
    detail = (
        "appendonly is off: after a restart Redis is empty. That loses no job: starts pause for seconds while it is filled "
        "from the database, and what started in those seconds may run twice"
    )
    return Finding(Level.WARN, "append file", detail, "CONFIG SET appendonly yes, and appendonly yes in redis.conf")


async def _rights(connection: Connection, name: str) -> Finding:
    try:
        await connection.ask("EVAL", _TRY, 1, f"{name}:doctor", failing=SignalsUnavailable)
    except SignalsUnavailable as error:
        fix = f"ACL SETUSER NAME ~{name}:* &{name}:* +@all -@dangerous +info +time"
        return Finding(Level.FAIL, "redis rights", error.detail, fix)
    return Finding(Level.OK, "redis rights", f"keys and channels that begin with {name}: can be written")
