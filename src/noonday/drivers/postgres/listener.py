"""Listen for timeline entries that applications commit in their own transactions."""

import asyncio
import contextlib
from collections.abc import Callable, Collection
from typing import Any

import asyncpg
import msgspec
import structlog

from noonday.drivers.postgres.connection import PostgresOptions, connect, translated
from noonday.model.errors import StoreUnavailable
from noonday.model.firing import Entry
from noonday.ports.hot_index import HotIndex

log = structlog.get_logger("noonday.postgres")
CHECK_SEC = 5.0
"""Seconds without a notification after which the session is checked."""
_decode = msgspec.json.Decoder(Entry).decode


class TimelineListener:
    """Adds entries of owned partitions to the hot index when they are committed.

    The sweeper finds entries that are committed while no session listens.
    """

    def __init__(
        self,
        options: PostgresOptions,
        index: HotIndex,
        partitions: Callable[[], Collection[int]],
        on_placed: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_placed` is called when entries were added."""
        self._options = options
        self._index = index
        self._partitions = partitions
        self._session: Any = None
        self._received: asyncio.Queue[str] = asyncio.Queue()
        self._on_placed = on_placed

    async def run_once(self, now_ms: int) -> int:
        """Wait up to CHECK_SEC for notifications. Returns how many entries were added to the index. Raises StoreUnavailable."""
        if self._session is None or self._session.is_closed():
            await self._listen()
        try:
            payloads = [await asyncio.wait_for(self._received.get(), CHECK_SEC)]
        except TimeoutError:
            await self._check_session()
            return 0
        while not self._received.empty():
            payloads.append(self._received.get_nowait())
        owned = self._partitions()
        entries = [entry for entry in map(_entry_of, payloads) if entry is not None and entry.partition in owned]
        if entries:
            await self._index.hint(entries)
            self._on_placed()
        return len(entries)

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            with contextlib.suppress(
                OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError
            ):
                await session.close(timeout=2)

    async def _listen(self) -> None:
        with translated():
            self._session = await connect(self._options)
            self._session.add_termination_listener(lambda session: self._received.put_nowait(""))
            await self._session.add_listener(channel_of(self._options.schema), self._on_notification)

    def _on_notification(self, session: Any, pid: int, channel: str, payload: object) -> None:
        self._received.put_nowait(str(payload))

    async def _check_session(self) -> None:
        """Check that the session is connected. A session that was cut off is as silent as an idle one."""
        try:
            with translated():
                await self._session.fetchval("SELECT 1", timeout=CHECK_SEC)
        except StoreUnavailable:
            self._session.terminate()
            raise


def channel_of(schema: str) -> str:
    """Return the channel that `callers_notify` notifies. A name in PostgreSQL has at most 63 bytes."""
    return f"noonday_{schema}"[:63]


def _entry_of(payload: str) -> Entry | None:
    """Return the entry in a notification. None if the session has ended (empty payload) or the payload is not an entry.

    Any session can notify the channel.
    """
    try:
        return _decode(payload) if payload else None
    except msgspec.DecodeError:
        log.warning("unreadable notification", payload=payload[:200])
        return None
