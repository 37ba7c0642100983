"""Checks of `noonday doctor` for PostgreSQL."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from noonday.cli.server.checks import SAMPLE, CheckContext, Finding, Level, payload_finding
from noonday.cli.server.server_clock import check_server_clock
from noonday.crypto.envelope import context_of
from noonday.crypto.keyring import Keyring
from noonday.drivers.postgres.connection import PostgresDatabase
from noonday.drivers.postgres.migrations import missing_indexes, pending
from noonday.model.errors import BadKey, BadSettings, StoreUnavailable
from noonday.wiring.cluster.servers import keyring_of, postgres_options
from noonday.wiring.settings import Settings

OLDEST = 150_000
FEW_PROCESSES = 2
SEARCHED_ROWS = 2_000

_SERVER = """
SELECT current_setting('server_version') AS version, current_setting('server_version_num')::int AS number,
       current_database() AS database, current_user AS "user", inet_server_port() AS port, pg_is_in_recovery() AS standby,
       current_setting('fsync') AS fsync, current_setting('full_page_writes') AS full_page_writes,
       current_setting('synchronous_commit') AS synchronous_commit,
       current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int AS allowed,
       (SELECT sum(numbackends)::int FROM pg_stat_database) AS used
"""
_RIGHTS = """
SELECT n.oid IS NOT NULL AS there, has_database_privilege(current_database(), 'CREATE') AS may_make,
       n.oid IS NOT NULL AND has_schema_privilege(n.oid, 'USAGE') AND has_schema_privilege(n.oid, 'CREATE') AS may_use,
       (SELECT array_agg(c.relname::text ORDER BY c.relname) FROM pg_class c
        WHERE c.relnamespace = n.oid AND c.relkind IN ('r', 'p') AND NOT pg_has_role(c.relowner, 'USAGE')) AS of_others
FROM (SELECT 1) one LEFT JOIN pg_namespace n ON n.nspname = $1
"""
_SAMPLES = """
SELECT * FROM (SELECT tenant, id::text AS job_id, payload AS sealed FROM jobs ORDER BY tenant, id {0} LIMIT {1}) found
WHERE sealed IS NOT NULL LIMIT {2}
"""
_RESULTS = """
SELECT * FROM (SELECT tenant, job_id::text, result AS sealed FROM executions ORDER BY id {0} LIMIT {1}) found
WHERE sealed IS NOT NULL LIMIT {2}
"""


async def check_postgres(context: CheckContext) -> AsyncIterator[Finding]:
    settings = context.settings
    try:
        async with _open_database(settings) as database:
            found = await database.row(_SERVER)
            for finding in _server(found, settings):
                yield finding
            yield await check_server_clock("db clock", lambda: _now_ms(database), settings.cluster.max_clock_offset_sec)
            permissions = _permissions(await database.row(_RIGHTS, settings.postgres.schema), settings, found)
            yield permissions
            if permissions.level is not Level.FAIL:
                async for finding in _check_content(database, settings):
                    yield finding
    except StoreUnavailable as error:
        yield Finding(Level.FAIL, "postgres", error.detail, _fix_for(error.detail))


@asynccontextmanager
async def _open_database(settings: Settings) -> AsyncIterator[PostgresDatabase]:
    options = replace(postgres_options(settings), sessions=2, name="noonday doctor")
    try:
        database = await PostgresDatabase.open(options)
    except BadSettings as error:
        raise StoreUnavailable(error.detail) from error
    try:
        yield database
    finally:
        await database.close()


def _fix_for(detail: str) -> str:
    if "refuses us" in detail:
        return "check user and password in postgres.url (NOONDAY_POSTGRES_URL), and the rules in pg_hba.conf"
    if "does not exist" in detail:
        return "create the database (createdb), or set postgres.url (NOONDAY_POSTGRES_URL) to another one"
    if "certificate" in detail.lower() or "ssl" in detail.lower():
        return (
            "set postgres.ca_file to the CA that signed the server's certificate, which must be for the host in the URL"
        )
    if "cannot be read" in detail or "ClientConfigurationError" in detail:
        return "write postgres.url as postgresql://USER:PASSWORD@HOST:5432/DATABASE; in a password, / is %2F, @ is %40, : is %3A"
    return (
        "start PostgreSQL, or correct postgres.url (NOONDAY_POSTGRES_URL); check that no firewall blocks the connection"
    )


async def _now_ms(database: PostgresDatabase) -> int:
    return int(await database.value("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"))


def _server(found: Any, settings: Settings) -> Iterator[Finding]:
    server = f"{found['version']}, database {found['database']} as {found['user']}"
    if found["number"] < OLDEST:
        yield Finding(Level.FAIL, "postgres", f"{server}: too old, 15 or later is needed", "upgrade the server")
    elif found["standby"]:
        fix = "connect to the primary; with several hosts in the URL, target_session_attrs=read-write finds it"
        yield Finding(Level.FAIL, "postgres", f"{server}: this is a standby, which accepts no writes", fix)
    else:
        yield Finding(Level.OK, "postgres", server)
    yield _durability(found)
    yield _connections(found, settings.postgres.sessions)


def _durability(found: Any) -> Finding:
    off = [name for name in ("fsync", "full_page_writes") if found[name] == "off"]
    if off:
        detail = f"{' and '.join(off)} off: if the machine fails, everything may be lost"
        return Finding(Level.FAIL, "durability", detail, f"set {off[0]} = on in postgresql.conf")
    if found["synchronous_commit"] == "off":
        detail = "synchronous_commit is off: a crash of the server loses the last acknowledged transactions"
        fix = f"ALTER ROLE {found['user']} SET synchronous_commit = on; unless you accept that loss"
        return Finding(Level.WARN, "durability", detail, fix)
    return Finding(Level.OK, "durability", f"fsync on, synchronous_commit {found['synchronous_commit']}")


def _connections(found: Any, sessions: int) -> Finding:
    room = max(0, found["allowed"] - found["used"]) // sessions
    detail = (
        f"{found['used']} of {found['allowed']} in use; a process uses up to {sessions}: room for {room} more processes"
    )
    if room < FEW_PROCESSES:
        fix = "raise max_connections, or lower postgres.sessions (workers need none)"
        return Finding(Level.WARN, "connections", detail, fix)
    return Finding(Level.OK, "connections", detail)


def _permissions(found: Any, settings: Settings, server: Any) -> Finding:
    schema, user = settings.postgres.schema, server["user"]
    if not found["there"] and not found["may_make"]:
        fix = f"as owner of the database: CREATE SCHEMA {schema} AUTHORIZATION {user}"
        return Finding(Level.FAIL, "rights", f"schema {schema} does not exist, and {user} may not create it", fix)
    if found["there"] and not found["may_use"]:
        fix = f"as owner of the schema: GRANT USAGE, CREATE ON SCHEMA {schema} TO {user}"
        return Finding(Level.FAIL, "rights", f"{user} may not use schema {schema}, or may not create tables in it", fix)
    if found["of_others"]:
        detail = (
            f"{user} does not own {', '.join(found['of_others'][:3])}{' ...' if len(found['of_others']) > 3 else ''}"
        )
        fix = f"run `noonday migrate` as the user of the processes, or GRANT the owner's role TO {user}"
        return Finding(Level.FAIL, "rights", f"{detail} in schema {schema}: only owners can create partitions", fix)
    return Finding(Level.OK, "rights", f"{user} has the needed permissions in schema {schema}")


async def _check_content(database: PostgresDatabase, settings: Settings) -> AsyncIterator[Finding]:
    try:
        missing = await pending(database)
    except StoreUnavailable as error:
        fix = "use the release of Noonday that migrated the database, or a newer one"
        yield Finding(Level.FAIL, "migrations", error.detail, fix)
        return
    if missing:
        yield Finding(Level.FAIL, "migrations", f"not applied: {', '.join(missing)}", "noonday migrate")
        return
    if slow := await missing_indexes(database):
        yield Finding(Level.WARN, "migrations", f"indexes not built: {', '.join(slow)}", "noonday migrate")
    else:
        yield Finding(Level.OK, "migrations", "up to date")
    try:
        ring = keyring_of(settings)
    except BadSettings:
        return  # the check of the keys reports it
    yield await _check_payloads(database, ring)


async def _check_payloads(database: PostgresDatabase, ring: Keyring) -> Finding:
    """Decrypt the oldest and newest payloads, to cover data from before and after the last key rotation."""
    samples = set[tuple[str, str, bytes]]()
    for query in (_SAMPLES, _RESULTS):
        for order in ("ASC", "DESC"):
            rows = await database.fetch(query.format(order, SEARCHED_ROWS, SAMPLE))
            samples.update((row["tenant"], row["job_id"], row["sealed"]) for row in rows)
    errors = [error for tenant, job_id, sealed in samples if (error := _decrypt_error(ring, sealed, tenant, job_id))]
    return payload_finding(ring, len(samples), errors)


def _decrypt_error(ring: Keyring, sealed: bytes, tenant: str, job_id: str) -> str | None:
    try:
        ring.open(sealed, context_of(tenant, job_id))
    except BadKey as bad:
        return bad.detail
    return None
