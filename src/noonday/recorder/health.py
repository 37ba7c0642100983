"""Health of endpoints, by the outcomes of webhook calls."""

from collections.abc import Iterable

import structlog

from noonday.model.endpoint import Failures
from noonday.model.errors import is_bad_data
from noonday.model.execution import Outcome
from noonday.model.ids import TenantId
from noonday.model.message import Report
from noonday.model.secret import EndpointKey
from noonday.ports.clock import Clock
from noonday.ports.endpoints import Endpoints

log = structlog.get_logger("noonday.recorder")
CACHE_SEC = 5.0
"""Time for which an endpoint is taken for healthy after a success. Further successes in this time are not written."""
_MAX_CACHED = 10_000
_MAX_ERROR_CHARS = 500


class HealthKeeper:
    """Writes changes of endpoint health to the store, in one small transaction after each settled batch.

    Outcomes that are written twice, because a batch was read twice, do no harm. Outcomes that could not be written are written
    with the next batch.
    """

    def __init__(self, endpoints: Endpoints, clock: Clock) -> None:
        self._endpoints = endpoints
        self._clock = clock
        self._healthy_until: dict[EndpointKey, float] = {}
        """Time until which each endpoint is taken for healthy, by the monotonic clock."""
        self._succeeded: set[EndpointKey] = set()
        self._failed: dict[EndpointKey, Failures] = {}

    async def note(self, reports: Iterable[Report]) -> None:
        """Write the outcomes of calls that change the health of their endpoints. Raises StoreUnavailable."""
        now = self._clock.monotonic()
        for report in reports:
            if report.endpoint is not None:
                self._add((TenantId(report.tenant), report.endpoint), report, now)
        if not (self._succeeded or self._failed):
            return
        try:
            await self._endpoints.note_calls(self._succeeded, self._failed, self._clock.now_ms())
        except Exception as error:
            if not is_bad_data(error):
                raise
            # An endpoint has a name that cannot be stored. The others are written with their next calls.
            log.exception("endpoint health dropped", endpoints=len(self._succeeded) + len(self._failed))
            self._succeeded, self._failed = set(), {}
        self._cache_successes(now)

    def _add(self, endpoint: EndpointKey, report: Report, now: float) -> None:
        if report.outcome != Outcome.SUCCEEDED:
            failures = self._failed[endpoint].count if endpoint in self._failed else 0
            self._failed[endpoint] = Failures(failures + 1, _error(report))
            self._healthy_until.pop(endpoint, None)
        elif self._healthy_until.get(endpoint, now) <= now:
            self._succeeded.add(endpoint)
            self._failed.pop(endpoint, None)

    def _cache_successes(self, now: float) -> None:
        if len(self._healthy_until) > _MAX_CACHED:
            self._healthy_until = {}
        self._healthy_until |= dict.fromkeys(self._succeeded.difference(self._failed), now + CACHE_SEC)
        self._succeeded, self._failed = set(), {}


def _error(report: Report) -> str:
    return report.failure.message[:_MAX_ERROR_CHARS] if report.failure else Outcome(report.outcome).name
