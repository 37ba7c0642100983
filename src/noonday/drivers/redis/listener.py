"""Listens to a channel of Redis, and subscribes again when the connection breaks."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from noonday.drivers.redis.connection import Connection
from noonday.model.errors import Unavailable
from noonday.ports.clock import Clock
from noonday.runtime.supervise import should_log

log = structlog.get_logger("noonday.redis")
_RETRY_SEC = 0.5


@dataclass(eq=False)
class Listener:
    """Passes the messages of a channel to `on_message`.

    Messages that are published while the connection is broken are lost. `on_subscribed` is called after each subscription.
    """

    connection: Connection
    channel: str
    clock: Clock
    on_message: Callable[[bytes], None] = field(kw_only=True)
    on_subscribed: Callable[[], None] = field(default=lambda: None, kw_only=True)
    _attempted: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _task: asyncio.Task[None] | None = field(default=None, init=False)
    _failures: int = field(default=0, init=False)

    def start(self) -> None:
        """Start to listen, at the first call. Raises the error that ended listening, if one did."""
        if self._task is None:
            self._task = asyncio.create_task(self._listen())
        elif self._task.done():
            self._task.result()

    async def first_attempt(self) -> None:
        """Wait until the first subscription succeeded or failed."""
        await self._attempted.wait()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _listen(self) -> None:
        while True:
            try:
                await self.connection.listen(self.channel, self._note_subscribed, self.on_message)
            except Unavailable as error:
                self._failures += 1
                if should_log(self._failures):
                    log.warning("redis unavailable", channel=self.channel, error=error.detail, failures=self._failures)
            self._attempted.set()
            await self.clock.sleep(_RETRY_SEC)

    def _note_subscribed(self) -> None:
        self._failures = 0
        self._attempted.set()
        self.on_subscribed()
