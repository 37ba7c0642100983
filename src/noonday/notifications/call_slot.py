"""Limits of a provider account: each call takes a slot and a token."""

import structlog

from noonday.model.endpoint import EndpointLimits
from noonday.model.errors import SignalsUnavailable
from noonday.model.ids import ExecutionId
from noonday.model.notifications.sending import ProviderAccount
from noonday.model.throttle import GO, CallEnd, CallRequest
from noonday.ports.clock import Clock
from noonday.ports.throttles import Throttles

log = structlog.get_logger("noonday.notifications")
CALL_SEC = 17.0
"""Time limit of one call of a provider, a little longer than the limit of the providers themselves."""
PAUSE_MS = 1_000
"""Longest wait for an account's rate within a dispatch. A longer one is another dispatch."""


class CallSlot:
    """The part of an account's limits that one call takes."""

    def __init__(self, throttles: Throttles, clock: Clock, account: ProviderAccount, notification: str) -> None:
        self._throttles = throttles
        self._clock = clock
        self._name = f"provider/{account.tenant}/{account.name}"
        self._execution = ExecutionId(notification)
        limits = account.limits
        has_any = limits.rate_per_sec is not None or limits.max_concurrency is not None
        self._limits = EndpointLimits(limits.max_concurrency, limits.rate_per_sec) if has_any else None
        self._entered_ms: int | None = None

    async def enter(self) -> int:
        """Wait for a slot and a token. Returns 0, or after how many ms to return if the wait is too long."""
        if self._limits is None:
            return 0
        while True:
            now_ms = self._clock.now_ms()
            request = CallRequest(self._name, self._execution, self._limits, round(CALL_SEC * 1000) + PAUSE_MS)
            answer = (await self._throttles.ask([request], now_ms))[0]
            if answer == GO:
                self._entered_ms = now_ms
                return 0
            if abs(answer) > PAUSE_MS:
                return abs(answer)
            await self._clock.sleep(abs(answer) / 1000)

    async def leave(self) -> None:
        if self._entered_ms is not None:
            try:
                ran_ms = max(1, self._clock.now_ms() - self._entered_ms)
                await self._throttles.end([CallEnd(self._name, self._execution, ran_ms)])
            except SignalsUnavailable:
                log.warning("throttle not told of the end of a call")  # its lease frees the slot
