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
"""Keepers beat twice a second. Whoever has just begun takes a generation without a beat for so long for an old copy."""
AGAIN_SEC = 10.0
"""How soon a revocation is copied again that could not be copied when it was stored."""


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
        self._set_at: dict[str, float] = {}
        self._not_new: set[str] | None = None
        """Pools that may have had a generation before."""
        self._beats: dict[str, int] = {}
        """For each pool the latest beat that was seen."""

    async def run_once(self, now_ms: int) -> int:
        restored = 0
        pools = await self._pools()
        if self._not_new is None:
            self._not_new = set(pools)
        for pool in pools:
            seen_ms = self._beats.get(pool, now_ms - BEATS_WITHIN_MS)
            beat_ms = await self._signals.beat(pool, now_ms, seen_ms)
            lost = beat_ms is None
            if lost or self._clock.monotonic() - self._set_at.get(pool, -math.inf) >= AGAIN_SEC:
                if revocations := await self._executions.revocations(pool, now_ms - REVOKED_FOR_MS):
                    await self._signals.revoke(pool, revocations)
                self._set_at[pool] = self._clock.monotonic()
            if lost:
                await self._signals.begin_generation(pool, self._clock.now_ms() if pool in self._not_new else 0)
                if pool in self._beats:
                    log.warning("signals were lost, and restored from the store", pool=pool)
                beat_ms = await self._signals.beat(pool, now_ms, 0)
                restored += 1
            if beat_ms is not None:
                self._beats[pool] = beat_ms
            self._not_new.add(pool)
        return restored
