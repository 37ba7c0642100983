"""How those whom webhooks call are doing, by what came of the calls."""

from collections.abc import Iterable

import structlog

from noonday.model.errors import is_bad_data
from noonday.model.execution import Outcome
from noonday.model.ids import TenantId
from noonday.model.message import Report
from noonday.ports.clock import Clock
from noonday.ports.endpoints import Endpoints, Failures, Whom

log = structlog.get_logger("noonday.recorder")
KNOWN_SEC = 5.0
"""For so long another success of somebody who was well is no news."""
_MOST_KNOWN = 10_000
_ERROR = 500


class HealthKeeper:
    """Notes in the store what is news, in one small transaction a batch, after the batch was settled.

    What is noted twice, because a batch came twice, does no harm. What could not be noted is noted with the next batch.
    """

    def __init__(self, endpoints: Endpoints, clock: Clock) -> None:
        self._endpoints = endpoints
        self._clock = clock
        self._well: dict[Whom, float] = {}
        """Until when those who were well are taken for that."""
        self._succeeded: set[Whom] = set()
        self._failed: dict[Whom, Failures] = {}

    async def note(self, reports: Iterable[Report]) -> None:
        """Raises StoreUnavailable."""
        now = self._clock.monotonic()
        for report in reports:
            if report.endpoint is not None:
                self._note_one((TenantId(report.tenant), report.endpoint), report, now)
        if not (self._succeeded or self._failed):
            return
        try:
            await self._endpoints.note_calls(self._succeeded, self._failed, self._clock.now_ms())
        except Exception as error:
            if not is_bad_data(error):
                raise
            # The name of an endpoint that cannot be stored: the next calls of the others are noted.
            log.exception("health of endpoints dropped", endpoints=len(self._succeeded) + len(self._failed))
            self._succeeded, self._failed = set(), {}
        self._remember(now)

    def _note_one(self, whom: Whom, report: Report, now: float) -> None:
        if report.outcome != Outcome.SUCCEEDED:
            before = self._failed[whom].count if whom in self._failed else 0
            self._failed[whom] = Failures(before + 1, _error(report))
            self._well.pop(whom, None)
        elif self._well.get(whom, now) <= now:
            self._succeeded.add(whom)
            self._failed.pop(whom, None)

    def _remember(self, now: float) -> None:
        if len(self._well) > _MOST_KNOWN:
            self._well = {}
        self._well |= dict.fromkeys(self._succeeded.difference(self._failed), now + KNOWN_SEC)
        self._succeeded, self._failed = set(), {}


def _error(report: Report) -> str:
    return report.failure.message[:_ERROR] if report.failure else Outcome(report.outcome).name
