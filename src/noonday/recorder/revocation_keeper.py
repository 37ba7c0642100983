"""Keeps the copy of revocations that workers read in step with the store."""

import math
from collections.abc import Awaitable, Callable, Sequence

import structlog

from noonday.model.fence import REVOKED_FOR_MS
from noonday.ports.clock import Clock
from noonday.ports.executions import Executions
from noonday.ports.signals import Signals

log = structlog.get_logger("noonday.revocations")
BEATS_WITHIN_MS = 60_000
"""Longest silence of a live generation. A new keeper takes a generation without a beat for this long for an old copy: keepers
beat twice a second."""
COPY_EVERY_SEC = 10.0
"""Interval between copies of revocations that could not be copied when they were stored."""


class RevocationKeeper:
    """Copies a pool's revocations from the store after the signals lost them, then begins a generation.

    The new generation fences everything fired before it, because the signals no longer know what has run. A Redis that was
    restored from an old copy, or failed over to a lagging replica, still has a generation but lacks later revocations. Its
    beat gives it away: the beat must never go back.
    """

    def __init__(
        self, executions: Executions, signals: Signals, pools: Callable[[], Awaitable[Sequence[str]]], clock: Clock
    ) -> None:
        self._executions = executions
        self._signals = signals
        self._pools = pools
        self._clock = clock
        self._copied_at: dict[str, float] = {}
        self._known_pools: set[str] | None = None
        """Pools that may have had a generation before; None before the first round."""
        self._beats: dict[str, int] = {}
        """Latest beat seen, by pool."""

    async def run_once(self, now_ms: int) -> int:
        restored = 0
        pools = await self._pools()
        if self._known_pools is None:
            self._known_pools = set(pools)
        for pool in pools:
            seen_ms = self._beats.get(pool, now_ms - BEATS_WITHIN_MS)
            beat_ms = await self._signals.beat(pool, now_ms, seen_ms)
            lost = beat_ms is None
            if lost or self._clock.monotonic() - self._copied_at.get(pool, -math.inf) >= COPY_EVERY_SEC:
                if revocations := await self._executions.revocations(pool, now_ms - REVOKED_FOR_MS):
                    await self._signals.revoke(pool, revocations)
                self._copied_at[pool] = self._clock.monotonic()
            if lost:
                await self._signals.begin_generation(pool, self._clock.now_ms() if pool in self._known_pools else 0)
                if pool in self._beats:
                    log.warning("signals restored from the store", pool=pool)
                beat_ms = await self._signals.beat(pool, now_ms, 0)
                restored += 1
            if beat_ms is not None:
                self._beats[pool] = beat_ms
            self._known_pools.add(pool)
        return restored
