"""Threads that each drive one Kafka client, which waits for the broker in real time."""

import asyncio
import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

import structlog
from confluent_kafka import KafkaError

from noonday.model.errors import BusUnavailable
from noonday.ports.clock import Clock
from noonday.runtime.clock import SystemClock

T = TypeVar("T")
log = structlog.get_logger("noonday.kafka")
RETRY_SEC = 0.5
"""Pause after an unexpected error, in seconds."""
_WARN_EVERY_SEC = 30.0
real_clock = SystemClock()
"""Timeouts of clients follow real time, whatever clock the rest of the program has."""


async def wait_for_items(find: Callable[[], list[T]], arrived: asyncio.Event, clock: Clock, wait_sec: float) -> list[T]:
    """Return the items that `find` returns, as soon as there are any. Returns none after `wait_sec`."""
    deadline = clock.monotonic() + wait_sec
    while True:
        arrived.clear()
        found = find()
        left = deadline - clock.monotonic()
        if found or left <= 0:
            return found
        await clock.wait_for(arrived, left)


class ClientThread(ABC):
    """Drives one client in its own thread, from `start` to `stop`. No other thread touches that client."""

    def __init__(self, name: str) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = threading.Event()
        self._ended = asyncio.Event()
        self._warned_at: dict[int, float] = {}
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread. It calls back on the loop that is running now."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def start_once(self) -> None:
        if self._loop is None:
            self.start()

    async def stop(self, within_sec: float) -> None:
        """End the thread. Raises BusUnavailable if it does not end in time, because the client hangs."""
        self._stopping.set()
        if self._thread.ident is None:
            return
        try:
            async with asyncio.timeout(within_sec):
                await self._ended.wait()
        except TimeoutError as error:
            raise BusUnavailable(f"kafka: {self._thread.name} did not end within {within_sec:g} s") from error
        self._thread.join()

    @property
    def running(self) -> bool:
        return self._thread.is_alive() and not self._stopping.is_set()

    @abstractmethod
    def _open(self) -> None:
        """Create the client."""

    @abstractmethod
    def _run_once(self) -> None:
        """Do one round of work, for a fraction of a second at most."""

    @abstractmethod
    def _close(self) -> None:
        """Close the client."""

    def _call_on_loop(self, callback: Callable[..., object], *args: Any) -> None:
        """Call a function on the loop, unless the loop is closed."""
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, *args)

    def _warn(self, event: str, error: KafkaError) -> None:
        """Log an error of the client, each error code at most every half minute."""
        now = real_clock.monotonic()
        if now - self._warned_at.get(error.code(), -_WARN_EVERY_SEC) >= _WARN_EVERY_SEC:
            self._warned_at[error.code()] = now
            log.warning(event, thread=self._thread.name, error=error.str())

    def _run(self) -> None:
        try:
            self._open()
            while not self._stopping.is_set():
                self._run_once_safely()
            self._close()
        except Exception:
            log.exception("kafka client thread failed", thread=self._thread.name)
        finally:
            self._call_on_loop(self._ended.set)

    def _run_once_safely(self) -> None:
        try:
            self._run_once()
        except Exception:
            log.exception("kafka client round failed", thread=self._thread.name)
            self._stopping.wait(RETRY_SEC)
