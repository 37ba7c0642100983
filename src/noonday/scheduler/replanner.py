"""Replans schedules when newer time-zone data is installed, a few jobs at a time."""

import structlog

from noonday.model.zones import tzdata_version
from noonday.ports.clock import Clock
from noonday.ports.firing import Firing
from noonday.transitions.replanning import is_superseded

log = structlog.get_logger("noonday.replanner")
PAGE = 20
"""Jobs replanned in one step: a rare fire time takes milliseconds to find."""
REQUEST_EVERY_SEC = 600.0
"""Interval at which a process with older data asks that the jobs it fired meanwhile be replanned with the newest."""


class Replanner:
    """Walks all recurring jobs once for each version of the time-zone data. If processes differ, the newest version wins."""

    def __init__(self, firing: Firing, clock: Clock, version: str | None = None) -> None:
        self._firing = firing
        self._clock = clock
        self._version = version or tzdata_version()
        self._request_at = clock.monotonic()

    async def run_once(self, now_ms: int) -> int:
        newest = await self._firing.zone_data()
        if newest is None or not is_superseded(self._version, newest):
            return int(await self._firing.replan(self._version, PAGE, now_ms) == PAGE)
        if newest != self._version and self._clock.monotonic() >= self._request_at:
            log.warning("time-zone data outdated; update this host", ours=self._version, newest=newest)
            self._request_at = self._clock.monotonic() + REQUEST_EVERY_SEC
            await self._firing.replan_again(newest)
        return 0
