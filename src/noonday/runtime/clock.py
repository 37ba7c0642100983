"""The real clock. Reading time and sleeping happen here and nowhere else."""

import asyncio
import time

from noonday.ports.clock import Clock


class SystemClock(Clock):
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
