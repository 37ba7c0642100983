"""Hears of what applications committed in transactions of their own, the moment they commit."""

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
LOOK_SEC = 5.0
"""How often a session that says nothing is asked whether it is still there."""
_decode = msgspec.json.Decoder(Entry).decode


class Notices:
    """Places entries of partitions that are ours. What is committed while no session listens is found by the sweeper."""

    def __init__(self, options: PostgresOptions, index: HotIndex, partitions: Callable[[], Collection[int]]) -> None:
        self._options = options
        self._index = index
        self._partitions = partitions
        self._session: Any = None
        self._heard: asyncio.Queue[str] = asyncio.Queue()
        self.on_placed: Callable[[], None] = lambda: None

    async def run_once(self, now_ms: int) -> int:
        """Wait for notices for a while. Answers how many entries were placed. Raises StoreUnavailable."""
        if self._session is None or self._session.is_closed():
            await self._listen()
        try:
            said = [await asyncio.wait_for(self._heard.get(), LOOK_SEC)]
        except TimeoutError:
            await self._look()
            return 0
        while not self._heard.empty():
            said.append(self._heard.get_nowait())
        ours = self._partitions()
        entries = [entry for entry in map(_read, said) if entry is not None and entry.partition in ours]
        if entries:
            await self._index.hint(entries)
            self.on_placed()
        return len(entries)

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            with contextlib.suppress(OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
                await session.close(timeout=2)

    async def _listen(self) -> None:
        with translated():
            self._session = await connect(self._options)
            self._session.add_termination_listener(lambda session: self._heard.put_nowait(""))
            await self._session.add_listener(channel_of(self._options.schema), self._on_notice)

    def _on_notice(self, session: Any, pid: int, channel: str, said: object) -> None:
        self._heard.put_nowait(str(said))

    async def _look(self) -> None:
        """A session that was cut off says nothing, as one does of which nobody has anything to say."""
        try:
            with translated():
                await self._session.fetchval("SELECT 1", timeout=LOOK_SEC)
        except StoreUnavailable:
            self._session.terminate()
            raise


def channel_of(schema: str) -> str:
    """As `callers_tell` names it. A name in PostgreSQL has 63 bytes at most."""
    return f"noonday_{schema}"[:63]


def _read(said: str) -> Entry | None:
    """An empty one says that the session has ended. Anybody can notify: what is not an entry is left alone."""
    try:
        return _decode(said) if said else None
    except msgspec.DecodeError:
        log.warning("unreadable notice", said=said[:200])
        return None
