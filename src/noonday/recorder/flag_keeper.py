"""Keeps the copy of the users' wishes that workers look at in step with the store."""

from collections.abc import Callable, Sequence

from noonday.ports.executions import Executions
from noonday.ports.signals import Signals


class FlagKeeper:
    """Sets the flags of a pool again from the store when they were lost, and allows starts afterwards."""

    def __init__(self, executions: Executions, signals: Signals, pools: Callable[[], Sequence[str]]) -> None:
        self._executions = executions
        self._signals = signals
        self._pools = pools

    async def run_once(self, now_ms: int) -> int:
        restored = 0
        for pool in self._pools():
            if not await self._signals.has_era(pool):
                await self._signals.raise_flags(pool, await self._executions.wishes(pool))
                await self._signals.begin_era(pool)
                restored += 1
        return restored
