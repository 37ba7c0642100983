"""Checks of `noonday doctor` for PostgreSQL."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from noonday.cli.checks import SAMPLE, Finding, Level, Patient, payload_finding
from noonday.cli.server_clock import check_server_clock
from noonday.crypto.envelope import context_of
from noonday.crypto.keyring import Keyring
from noonday.drivers.postgres.connection import Database
from noonday.drivers.postgres.migrations import missing_indexes, pending
from noonday.model.errors import BadKey, BadSettings, StoreUnavailable
from noonday.wiring.cluster import keyring_of, postgres_options
from noonday.wiring.settings import Settings

OLDEST = 150_000
FEW_PROCESSES = 2
LOOKED_THROUGH = 2_000

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


async def check_postgres(patient: Patient) -> AsyncIterator[Finding]:
    settings = patient.settings
    try:
        async with _opened(settings) as database:
            found = await database.row(_SERVER)
            for finding in _server(found, settings):
                yield finding
            yield await check_server_clock("db clock", lambda: _now_ms(database), settings.cluster.max_clock_offset_sec)
            rights = _rights(await database.row(_RIGHTS, settings.postgres.schema), settings, found)
            yield rights
            if rights.level is not Level.FAIL:
                async for finding in _content(database, settings):
                    yield finding
    except StoreUnavailable as error:
        yield Finding(Level.FAIL, "postgres", error.detail, _mend(error.detail))


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[Database]:
    options = replace(postgres_options(settings), sessions=2, name="noonday doctor")
    try:
        database = await Database.open(options)
    except BadSettings as error:
        raise StoreUnavailable(error.detail) from error
    try:
        yield database
    finally:
        await database.close()


def _mend(detail: str) -> str:
    if "refuses us" in detail:
        return "check user and password in postgres.url (NOONDAY_POSTGRES_URL), and who is let in by pg_hba.conf"
    if "does not exist" in detail:
        return "make the database (createdb), or name another one in postgres.url (NOONDAY_POSTGRES_URL)"
    if "certificate" in detail.lower() or "ssl" in detail.lower():
        return (
            "postgres.ca_file has to name who signed the server's certificate, which has to be for the host in the URL"
        )
    if "cannot be read" in detail or "ClientConfigurationError" in detail:
        return "write it as postgresql://USER:PASSWORD@HOST:5432/DATABASE; in a password, / is %2F, @ is %40, : is %3A"
    return "start it, or name the right one in postgres.url (NOONDAY_POSTGRES_URL); see that no firewall is in between"


async def _now_ms(database: Database) -> int:
    return int(await database.value("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"))


def _server(found: Any, settings: Settings) -> Iterator[Finding]:
    what = f"{found['version']}, database {found['database']} as {found['user']}"
    if found["number"] < OLDEST:
        yield Finding(Level.FAIL, "postgres", f"{what}: 15 is needed", "upgrade the server")
    elif found["standby"]:
        fix = "name the primary; of several hosts in the URL, target_session_attrs=read-write finds it"
        yield Finding(Level.FAIL, "postgres", f"{what}: this is a standby, which takes no writes", fix)
    else:
        yield Finding(Level.OK, "postgres", what)
    yield _durability(found)
    yield _connections(found, settings.postgres.sessions)


def _durability(found: Any) -> Finding:
    off = [name for name in ("fsync", "full_page_writes") if found[name] == "off"]
    if off:
        detail = f"{' and '.join(off)} off: when the machine fails, everything may be lost"
        return Finding(Level.FAIL, "durability", detail, f"set {off[0]} = on in postgresql.conf")
    if found["synchronous_commit"] == "off":
        detail = "synchronous_commit is off: a crash of the server loses the last moments of what was acknowledged"
        fix = f"ALTER ROLE {found['user']} SET synchronous_commit = on; unless you can do without those"
        return Finding(Level.WARN, "durability", detail, fix)
    return Finding(Level.OK, "durability", f"fsync on, synchronous_commit {found['synchronous_commit']}")


def _connections(found: Any, sessions: int) -> Finding:
    room = max(0, found["allowed"] - found["used"]) // sessions
    detail = f"{found['used']} of {found['allowed']} in use; a process takes up to {sessions}: room for {room} more"
    if room < FEW_PROCESSES:
        fix = "raise max_connections, or lower postgres.sessions (workers need none)"
        return Finding(Level.WARN, "connections", detail, fix)
    return Finding(Level.OK, "connections", detail)


def _rights(found: Any, settings: Settings, server: Any) -> Finding:
    schema, user = settings.postgres.schema, server["user"]
    if not found["there"] and not found["may_make"]:
        fix = f"as its owner: CREATE SCHEMA {schema} AUTHORIZATION {user}"
        return Finding(Level.FAIL, "rights", f"there is no schema {schema}, and {user} may not make it", fix)
    if found["there"] and not found["may_use"]:
        fix = f"as its owner: GRANT USAGE, CREATE ON SCHEMA {schema} TO {user}"
        return Finding(Level.FAIL, "rights", f"{user} may not use schema {schema}, or make tables in it", fix)
    if found["of_others"]:
        detail = (
            f"{user} does not own {', '.join(found['of_others'][:3])}{' ...' if len(found['of_others']) > 3 else ''}"
        )
        fix = f"run `noonday migrate` as the user that processes have; or GRANT the owner's role TO {user}"
        return Finding(Level.FAIL, "rights", f"{detail} in schema {schema}: partitions are made by owners", fix)
    return Finding(Level.OK, "rights", f"{user} may do what is needed in schema {schema}")


async def _content(database: Database, settings: Settings) -> AsyncIterator[Finding]:
    try:
        missing = await pending(database)
    except StoreUnavailable as error:
        fix = "use the Noonday that made the database, or a newer one"
        yield Finding(Level.FAIL, "migrations", error.detail, fix)
        return
    if missing:
        yield Finding(Level.FAIL, "migrations", f"to be applied: {', '.join(missing)}", "noonday migrate")
        return
    if slow := await missing_indexes(database):
        yield Finding(Level.WARN, "migrations", f"indexes to be built: {', '.join(slow)}", "noonday migrate")
    else:
        yield Finding(Level.OK, "migrations", "up to date")
    try:
        ring = keyring_of(settings)
    except BadSettings:
        return  # which is a finding of its own
    yield await _payloads(database, ring)


async def _payloads(database: Database, ring: Keyring) -> Finding:
    """Decrypt the oldest and newest payloads, to cover data from before and after the last key rotation."""
    samples = set[tuple[str, str, bytes]]()
    for query in (_SAMPLES, _RESULTS):
        for order in ("ASC", "DESC"):
            rows = await database.fetch(query.format(order, LOOKED_THROUGH, SAMPLE))
            samples.update((row["tenant"], row["job_id"], row["sealed"]) for row in rows)
    closed = [why for tenant, job_id, sealed in samples if (why := _why_closed(ring, sealed, tenant, job_id))]
    return payload_finding(ring, len(samples), closed)


def _why_closed(ring: Keyring, sealed: bytes, tenant: str, job_id: str) -> str | None:
    try:
        ring.open(sealed, context_of(tenant, job_id))
    except BadKey as bad:
        return bad.detail
    return None
