"""Keeps the copy of the users' wishes that workers look at in step with the store."""

import math
from collections.abc import Awaitable, Callable, Sequence

from noonday.model.fence import REVOKED_FOR_MS
from noonday.ports.clock import Clock
from noonday.ports.executions import Executions
from noonday.ports.signals import Signals

AGAIN_SEC = 10.0
"""How soon a flag that could not be set when it was wished is set after all."""


class FlagKeeper:
    """Sets the flags of a pool again from the store when they were lost, and allows starts afterwards: of what was fired since,
    because whether the rest has run is forgotten too."""

    def __init__(
        self, executions: Executions, signals: Signals, pools: Callable[[], Awaitable[Sequence[str]]], clock: Clock
    ) -> None:
        self._executions = executions
        self._signals = signals
        self._pools = pools
        self._clock = clock
        self._set_at: dict[str, float] = {}
        self._not_new: set[str] | None = None
        """Pools that may have had an era before."""

    async def run_once(self, now_ms: int) -> int:
        restored = 0
        pools = await self._pools()
        if self._not_new is None:
            self._not_new = set(pools)
        for pool in pools:
            lost = not await self._signals.has_era(pool)
            if lost or self._clock.monotonic() - self._set_at.get(pool, -math.inf) >= AGAIN_SEC:
                if wishes := await self._executions.wishes(pool, now_ms - REVOKED_FOR_MS):
                    await self._signals.raise_flags(pool, wishes)
                self._set_at[pool] = self._clock.monotonic()
            if lost:
                await self._signals.begin_era(pool, self._clock.now_ms() if pool in self._not_new else 0)
                restored += 1
            self._not_new.add(pool)
        return restored
