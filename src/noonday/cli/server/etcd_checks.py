"""Checks of `noonday doctor` for etcd, or for leases in Redis."""

import re
from collections.abc import AsyncIterator
from dataclasses import replace
from uuid import uuid4

import msgspec

from noonday.cli.server.checks import CheckContext, Finding, Level
from noonday.drivers.etcd.gateway import EtcdOptions, Gateway
from noonday.drivers.etcd.leases import EtcdLeases
from noonday.drivers.redis.leases import RedisLeases
from noonday.model.errors import BadSettings, LeasesUnavailable
from noonday.model.ids import InstanceId
from noonday.wiring.cluster.servers import etcd_options, leases_of, redis_connection
from noonday.wiring.settings import Settings

OLDEST = (3, 4)
GROUP = "doctor"


async def check_etcd(context: CheckContext) -> AsyncIterator[Finding]:
    settings = context.settings
    if settings.cluster.leases == "redis":
        yield await _check_redis_lease(settings)
        return
    endpoints = _endpoints(settings)
    findings = [await _check_endpoint(endpoint, settings, len(endpoints)) for endpoint in endpoints]
    for finding in findings:
        yield finding
    if all(finding.level is Level.FAIL for finding in findings):
        return
    if len(endpoints) < 3:
        detail = f"{len(endpoints)} configured: with fewer than three, the loss of one stops all schedulers"
        yield Finding(
            Level.WARN, "etcd nodes", detail, "run three nodes, on three machines, and set etcd.urls to all of them"
        )
    yield await _check_etcd_lease(endpoints, settings)


class _Node(msgspec.Struct):
    version: str
    leader: str = "0"
    errors: list[str] = []


async def _check_endpoint(endpoint: str, settings: Settings, total: int) -> Finding:
    gateway = Gateway([endpoint], _options(settings))
    try:
        status = await gateway.call("maintenance/status", {}, _Node)
    except LeasesUnavailable as error:
        level = Level.WARN if total > 2 and _is_down(error.detail) else Level.FAIL
        return Finding(level, "etcd", error.detail, _fix_for(error.detail))
    finally:
        await gateway.close()
    server = f"{status.version} at {endpoint}"
    if _numbers(status.version) < OLDEST:
        return Finding(Level.FAIL, "etcd", f"{server} is too old: 3.4 or later is needed", "upgrade the server")
    if status.leader == "0" or status.errors:
        detail = "; ".join(status.errors) or "it has no leader"
        return Finding(
            Level.FAIL, "etcd", f"{server}: {detail}", "see `etcdctl endpoint health` and `etcdctl alarm list`"
        )
    return Finding(Level.OK, "etcd", server)


async def _check_etcd_lease(endpoints: list[str], settings: Settings) -> Finding:
    cluster = settings.cluster
    leases = EtcdLeases(endpoints, GROUP, cluster.name, cluster.lease_ttl_sec, _options(settings))
    fix = f"grant the user write access: etcdctl role grant-permission ROLE --prefix=true readwrite {cluster.name}/"
    return await _try_lease(leases, f"etcd granted one for {cluster.lease_ttl_sec} s", fix)


async def _check_redis_lease(settings: Settings) -> Finding:
    redis = redis_connection(settings)
    try:
        leases = leases_of(settings, GROUP, redis)
        return await _try_lease(
            leases, f"Redis granted one for {settings.cluster.lease_ttl_sec} s", "see the findings about Redis"
        )
    finally:
        await redis.close()


async def _try_lease(leases: EtcdLeases | RedisLeases, success: str, fix: str) -> Finding:
    """Take and release a lease as a process does, in a group without processes."""
    try:
        await leases.join(InstanceId(f"i-{uuid4().hex[:20]}"), 1.0)
        await leases.leave()
    except LeasesUnavailable as error:
        return Finding(Level.FAIL, "lease", error.detail, fix)
    finally:
        await leases.close()
    return Finding(Level.OK, "lease", success)


def _endpoints(settings: Settings) -> list[str]:
    if settings.etcd.urls is None:
        raise BadSettings(
            "a cluster needs etcd.urls (NOONDAY_ETCD_URLS); without an etcd, set cluster.leases (NOONDAY_CLUSTER_LEASES) to redis"
        )
    return [url.strip() for url in settings.etcd.urls.split(",") if url.strip()]


def _options(settings: Settings) -> EtcdOptions:
    return replace(etcd_options(settings), timeout_sec=3.0)


def _is_down(detail: str) -> bool:
    return "refuses" not in detail


def _fix_for(detail: str) -> str:
    low = detail.lower()
    if "authentication failed" in low or "user name" in low or "permission denied" in low:
        return "check etcd.user and etcd.password (NOONDAY_ETCD_USER, NOONDAY_ETCD_PASSWORD)"
    if "certificate" in low or "[ssl" in low:
        return "set etcd.ca_file to the CA that signed the servers' certificates; etcd.cert_file and key_file are the client's"
    return "start etcd, or correct etcd.urls (NOONDAY_ETCD_URLS); for TLS a URL begins with https://"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])
