"""Hears a channel, and begins again when the connection broke."""

import asyncio
import contextlib
from collections.abc import Callable

import structlog

from noonday.drivers.redis.connection import Connection
from noonday.model.errors import Unavailable
from noonday.ports.clock import Clock
from noonday.runtime.supervise import worth_saying

log = structlog.get_logger("noonday.redis")
_PAUSE_SEC = 0.5


class Listener:
    """What is published while the connection is broken is not heard: `joined` is called each time it is there again."""

    def __init__(
        self,
        connection: Connection,
        channel: str,
        clock: Clock,
        *,
        heard: Callable[[bytes], None],
        joined: Callable[[], None] = lambda: None,
    ) -> None:
        self._connection = connection
        self._channel = channel
        self._clock = clock
        self._heard = heard
        self._joined = joined
        self._tried = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._failures = 0

    def begin(self) -> None:
        """From the first call on. Raises what ended it, if anything did."""
        if self._task is None:
            self._task = asyncio.create_task(self._listen())
        elif self._task.done():
            self._task.result()

    async def tried(self) -> None:
        """Returns once it hears, or cannot."""
        await self._tried.wait()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _listen(self) -> None:
        while True:
            try:
                await self._connection.listen(self._channel, self._on_joined, self._heard)
            except Unavailable as error:
                self._failures += 1
                if worth_saying(self._failures):
                    log.warning("cannot hear", channel=self._channel, error=error.detail, failures=self._failures)
            self._tried.set()
            await self._clock.sleep(_PAUSE_SEC)

    def _on_joined(self) -> None:
        self._failures = 0
        self._tried.set()
        self._joined()
