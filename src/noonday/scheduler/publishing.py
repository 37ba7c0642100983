"""Publishes dispatches to their pools, with the secrets and limits of the endpoints that they call."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import structlog

from noonday.model.endpoint import EndpointLimits
from noonday.model.execution import Failure, Outcome
from noonday.model.ids import TenantId, WorkerId
from noonday.model.message import Dispatch, Oversized, Report
from noonday.model.secret import EndpointKey
from noonday.ports.bus import Bus
from noonday.ports.clock import Clock
from noonday.ports.endpoints import Endpoints
from noonday.runtime.tracing import Tracing

log = structlog.get_logger("noonday.publisher")
CACHE_SEC = 2.0
"""Time for which secrets and limits of endpoints are cached: new ones are used after this time at the latest."""
_MAX_CACHED = 10_000
NO_WORKER = WorkerId("scheduler")
"""Author of reports about dispatches that never reached a worker."""
REPORTS_PARTITION = 0
"""Log partition of such reports. Any will do: they need no order with other reports of the same dispatch."""


class _Terms(NamedTuple):
    """Secrets and limits of one endpoint."""

    secrets: tuple[bytes, ...]
    limits: EndpointLimits | None


class Publisher:
    """Publishes dispatches together with what workers need to call their endpoints.

    Workers have no database access, so secrets travel with the dispatch, as ciphertext, and so do the endpoint's limits.
    """

    def __init__(self, bus: Bus, endpoints: Endpoints, tracing: Tracing, clock: Clock) -> None:
        self._bus = bus
        self._endpoints = endpoints
        self._tracing = tracing
        self._clock = clock
        self._cache: dict[EndpointKey, _Terms] = {}
        self._cached_until = 0.0

    async def publish(self, dispatches: Sequence[Dispatch]) -> None:
        """Publish dispatches. A dispatch larger than a message fails alone: its failure is reported in place of a worker.

        Raises BusUnavailable or StoreUnavailable: none, some or all were published.
        """
        with self._tracing.dispatching(await self._with_terms(dispatches)) as traced:
            oversized = await self._bus.publish(traced)
        if oversized:
            log.error("dispatches too large", count=len(oversized), execution=oversized[0].entry.execution_id)
            reports = [_failed(each, self._clock.now_ms()) for each in oversized]
            await self._bus.report(REPORTS_PARTITION, reports)

    async def _with_terms(self, dispatches: Sequence[Dispatch]) -> Sequence[Dispatch]:
        endpoints = {_endpoint_of(dispatch) for dispatch in dispatches if dispatch.endpoint is not None}
        if not endpoints:
            return dispatches
        await self._load_terms(endpoints)
        return [self._add_terms(dispatch) if dispatch.endpoint is not None else dispatch for dispatch in dispatches]

    def _add_terms(self, dispatch: Dispatch) -> Dispatch:
        terms = self._cache[_endpoint_of(dispatch)]
        return msgspec.structs.replace(dispatch, secrets=terms.secrets, limits=terms.limits)

    async def _load_terms(self, endpoints: set[EndpointKey]) -> None:
        if self._clock.monotonic() >= self._cached_until or len(self._cache) > _MAX_CACHED:
            self._cache = {}
            self._cached_until = self._clock.monotonic() + CACHE_SEC
        if missing := endpoints.difference(self._cache):
            secrets = await self._endpoints.sealed_for(missing, self._clock.now_ms())
            limits = await self._endpoints.limits_of(missing)
            self._cache |= {endpoint: _Terms(secrets[endpoint], limits.get(endpoint)) for endpoint in missing}


def _endpoint_of(dispatch: Dispatch) -> EndpointKey:
    assert dispatch.endpoint is not None
    return TenantId(dispatch.tenant), dispatch.endpoint


def _failed(oversized: Oversized[Dispatch], now_ms: int) -> Report:
    """Return the final failure of an oversized dispatch, which never reaches a worker."""
    dispatch = oversized.entry
    message = (
        f"dispatch has {oversized.size_bytes} bytes (payload {len(dispatch.payload or b'')}, progress "
        f"{len(dispatch.progress or b'')}), maximum {oversized.limit_bytes}; shrink them or raise kafka.message_bytes"
    )
    return Report(
        dispatch.execution_id,
        dispatch.number,
        NO_WORKER,
        Outcome.FAILED,
        now_ms,
        now_ms,
        Failure("DispatchTooLarge", message, retryable=False),
        pool=dispatch.pool,
        job_id=dispatch.job_id,
        tenant=dispatch.tenant,
    )
