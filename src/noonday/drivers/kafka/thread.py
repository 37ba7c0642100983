"""Threads of ours: each drives one client, which waits for the broker in real time, and ends when it is told to."""

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
AGAIN_SEC = 0.5
"""After an error of the client."""
_QUIET_SEC = 30.0
pace = SystemClock()
"""What a client does about the broker's silence follows real time, whatever clock the rest of the program has."""


async def first_of(find: Callable[[], list[T]], arrived: asyncio.Event, clock: Clock, wait_sec: float) -> list[T]:
    """What is found, at once or when something arrived; nothing, if the time is over."""
    deadline = clock.monotonic() + wait_sec
    while True:
        arrived.clear()
        found = find()
        left = deadline - clock.monotonic()
        if found or left <= 0:
            return found
        await clock.wait_for(arrived, left)


class ClientThread(ABC):
    """Turns one client's crank, in a thread of its own, from `start` to `stop`. No other thread touches that client."""

    def __init__(self, name: str) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = threading.Event()
        self._ended = asyncio.Event()
        self._complained: dict[int, float] = {}
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """What it has to tell, it tells the loop that is running now."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def start_once(self) -> None:
        if self._loop is None:
            self.start()

    async def stop(self, within_sec: float) -> None:
        """Raises BusUnavailable if the thread does not end: it hangs in the client."""
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
        """Make the client."""

    @abstractmethod
    def _turn(self) -> None:
        """One round, of a fraction of a second at most."""

    @abstractmethod
    def _close(self) -> None:
        """Let go of the client."""

    def _tell(self, what: Callable[..., object], *args: Any) -> None:
        """Call it on the loop, if that is still there."""
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(what, *args)

    def _complain(self, what: str, error: KafkaError) -> None:
        """Of each kind of error no more than every half a minute."""
        now = pace.monotonic()
        if now - self._complained.get(error.code(), -_QUIET_SEC) >= _QUIET_SEC:
            self._complained[error.code()] = now
            log.warning(what, thread=self._thread.name, error=error.str())

    def _run(self) -> None:
        try:
            self._open()
            while not self._stopping.is_set():
                self._safe_turn()
            self._close()
        except Exception:
            log.exception("a client of kafka ended", thread=self._thread.name)
        finally:
            self._tell(self._ended.set)

    def _safe_turn(self) -> None:
        try:
            self._turn()
        except Exception:
            log.exception("a client of kafka stumbled", thread=self._thread.name)
            self._stopping.wait(AGAIN_SEC)
