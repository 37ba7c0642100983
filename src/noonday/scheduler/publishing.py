"""What was fired goes to the workers of its pool, with what they need that is not their job's."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import structlog

from noonday.model.endpoint import EndpointLimits
from noonday.model.execution import Failure, Outcome
from noonday.model.ids import TenantId, WorkerId
from noonday.model.message import Dispatch, Report
from noonday.ports.bus import Bus, Oversized
from noonday.ports.clock import Clock
from noonday.ports.endpoints import Endpoints, Whom
from noonday.runtime.tracing import Tracing

log = structlog.get_logger("noonday.publisher")
KNOWN_SEC = 2.0
"""How soon a new secret is signed with, and a new limit is kept."""
_MOST_KNOWN = 10_000
NO_WORKER = WorkerId("scheduler")
"""Author of reports about dispatches that never reached a worker."""
REPORTS_PARTITION = 0
"""Log partition of such reports. Any will do: no order with other reports of the same dispatch has to be kept."""


class _Terms(NamedTuple):
    secrets: tuple[bytes, ...]
    limits: EndpointLimits | None


class Publisher:
    """Workers have no database: secrets travel with the dispatch, as ciphertext; so do the limits of whom it calls."""

    def __init__(self, bus: Bus, endpoints: Endpoints, tracing: Tracing, clock: Clock) -> None:
        self._bus = bus
        self._endpoints = endpoints
        self._tracing = tracing
        self._clock = clock
        self._known: dict[Whom, _Terms] = {}
        self._known_until = 0.0

    async def publish(self, dispatches: Sequence[Dispatch]) -> None:
        """Publish dispatches. One that is larger than a message fails alone: its end is reported for it.

        Raises BusUnavailable or StoreUnavailable: none, some or all were published.
        """
        with self._tracing.dispatching(await self._with_terms(dispatches)) as traced:
            oversized = await self._bus.publish(traced)
        if oversized:
            log.error("dispatches too large", count=len(oversized), execution=oversized[0].entry.execution_id)
            reports = [_failed(each, self._clock.now_ms()) for each in oversized]
            await self._bus.report(REPORTS_PARTITION, reports)

    async def _with_terms(self, dispatches: Sequence[Dispatch]) -> Sequence[Dispatch]:
        wanted = {_whom(dispatch) for dispatch in dispatches if dispatch.endpoint is not None}
        if not wanted:
            return dispatches
        await self._learn(wanted)
        return [self._on_terms(dispatch) if dispatch.endpoint is not None else dispatch for dispatch in dispatches]

    def _on_terms(self, dispatch: Dispatch) -> Dispatch:
        terms = self._known[_whom(dispatch)]
        return msgspec.structs.replace(dispatch, secrets=terms.secrets, limits=terms.limits)

    async def _learn(self, wanted: set[Whom]) -> None:
        if self._clock.monotonic() >= self._known_until or len(self._known) > _MOST_KNOWN:
            self._known = {}
            self._known_until = self._clock.monotonic() + KNOWN_SEC
        if unknown := wanted.difference(self._known):
            secrets = await self._endpoints.sealed_for(unknown, self._clock.now_ms())
            limits = await self._endpoints.limits_of(unknown)
            self._known |= {whom: _Terms(secrets[whom], limits.get(whom)) for whom in unknown}


def _whom(dispatch: Dispatch) -> Whom:
    assert dispatch.endpoint is not None
    return TenantId(dispatch.tenant), dispatch.endpoint


def _failed(oversized: Oversized[Dispatch], now_ms: int) -> Report:
    """No worker ever gets this dispatch: its execution ends as if a worker had refused it for good."""
    dispatch = oversized.entry
    message = (
        f"the dispatch has {oversized.size_bytes} bytes, more than a message of the bus may have ({oversized.limit_bytes}): "
        f"payload {len(dispatch.payload or b'')}, progress {len(dispatch.progress or b'')}; see kafka.message_bytes"
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
