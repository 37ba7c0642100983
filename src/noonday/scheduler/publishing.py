"""What was fired goes to the workers of its pool, with what they need that is not their job's."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from noonday.model.endpoint import EndpointLimits
from noonday.model.ids import TenantId
from noonday.model.message import Dispatch
from noonday.ports.bus import Bus
from noonday.ports.clock import Clock
from noonday.ports.endpoints import Endpoints, Whom
from noonday.runtime.tracing import Tracing

KNOWN_SEC = 2.0
"""How soon a new secret is signed with, and a new limit is kept."""
_MOST_KNOWN = 10_000


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
        """Raises BusUnavailable or StoreUnavailable: perhaps none were published, perhaps all."""
        with self._tracing.dispatching(await self._with_terms(dispatches)) as traced:
            await self._bus.publish(traced)

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
