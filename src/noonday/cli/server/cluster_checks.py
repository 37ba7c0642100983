"""Checks of `noonday doctor` for a cluster: each server, the keys and the secret.

The servers are checked concurrently, so that several unreachable servers take no longer than one. The checks take a lease
and set a key in Redis, and remove both at once. They change nothing else.
"""

import asyncio
import platform
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from urllib.parse import unquote, urlsplit

import msgspec

from noonday.cli.server.checks import CheckContext, Finding, Level
from noonday.cli.server.etcd_checks import check_etcd
from noonday.cli.server.kafka_checks import check_kafka
from noonday.cli.server.postgres_checks import check_postgres
from noonday.cli.server.redis_checks import check_redis
from noonday.model.errors import BadSettings, NoondayError
from noonday.model.zones import tzdata_version
from noonday.wiring.cluster.servers import keyring_of
from noonday.wiring.settings import Settings
from noonday.wiring.settings.reference import describe_settings

Check = Callable[[CheckContext], AsyncIterator[Finding]]


def examine_cluster(context: CheckContext) -> Iterator[Finding]:
    """Run all checks. A check that raises an error becomes a finding. No finding contains a password."""
    secrets = _SecretFilter(context.settings)
    for finding in [*_check_settings(context), *asyncio.run(_check_servers(context))]:
        yield secrets.hide(finding)


async def _check_servers(context: CheckContext) -> list[Finding]:
    results = await asyncio.gather(*(_run_check(about, check, context) for about, check in CHECKS.items()))
    return [finding for findings in results for finding in findings]


async def _run_check(about: str, check: Check, context: CheckContext) -> list[Finding]:
    findings: list[Finding] = []
    try:
        async for finding in check(context):
            findings.append(finding)  # noqa: PERF401 - findings before an error count
    except BadSettings as error:
        findings.append(Finding(Level.FAIL, about, error.detail))
    except NoondayError as error:
        fix = "see the log of the server, and run this again"
        findings.append(Finding(Level.FAIL, about, error.detail, fix))
    return findings


def _check_settings(context: CheckContext) -> Iterator[Finding]:
    yield Finding(Level.OK, "python", f"{platform.python_version()} at {sys.executable}")
    yield Finding(Level.OK, "time zones", f"data version {tzdata_version()}")
    yield _secret(context.settings)
    yield _keys(context.settings)


def _secret(settings: Settings) -> Finding:
    auth = settings.auth
    if auth.algorithm != "HS256":
        return Finding(Level.OK, "secret", f"not needed: tokens are verified with {auth.jwks_url or auth.jwks_file}")
    if auth.secret is None:
        fix = "set auth.secret (NOONDAY_AUTH_SECRET) to the same value for every API; openssl rand -base64 32 makes one"
        return Finding(
            Level.FAIL, "secret", "auth.secret is not set: the API of a cluster does not start without it", fix
        )
    return Finding(Level.OK, "secret", "comes from the settings")


def _keys(settings: Settings) -> Finding:
    try:
        ring = keyring_of(settings)
    except BadSettings as error:
        fix = "set NOONDAY_KEYS for every process, workers too; `noonday keys new` makes a key"
        return Finding(Level.FAIL, "keys", error.detail, fix)
    return Finding(Level.OK, "keys", f"{', '.join(ring.key_ids)}; {ring.current} encrypts")


class _SecretFilter:
    """Removes secrets from findings, because errors of servers and libraries may quote them."""

    def __init__(self, settings: Settings) -> None:
        self._secrets = sorted(set(_secrets(settings)), key=len, reverse=True)

    def hide(self, finding: Finding) -> Finding:
        detail, fix = self._without(finding.detail), finding.fix and self._without(finding.fix)
        return Finding(finding.level, finding.about, detail, fix)

    def _without(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text


def _secrets(settings: Settings) -> Iterator[str]:
    values = msgspec.to_builtins(settings)
    for doc in describe_settings():
        section, _, key = doc.key.rpartition(".")
        value = (values[section] if section else values)[key]
        if doc.secret and value:
            yield from _secret_parts(value)


def _secret_parts(value: str) -> Iterator[str]:
    yield value
    scheme, _, rest = value.partition("://")
    if not rest:
        return
    try:
        parts = urlsplit(value)
    except ValueError:
        parts = urlsplit(f"{scheme}://")
    if parts.password:
        yield from (parts.password, unquote(parts.password))
    elif "@" in rest and "@" not in parts.netloc:
        # The URL is unreadable: any text before the host may be part of a password.
        yield from (piece for piece in re.split("[:/@?#]", rest.rpartition("@")[0]) if len(piece) > 2)


CHECKS: dict[str, Check] = {
    "postgres": check_postgres,
    "redis": check_redis,
    "kafka": check_kafka,
    "etcd": check_etcd,
}
