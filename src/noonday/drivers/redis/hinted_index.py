"""The hot index in the owner's process. Other processes send it the entries that they place, through Redis."""

from collections.abc import Callable, Collection, Sequence

import msgspec
import structlog

from noonday.drivers.redis.connection import Command, Connection
from noonday.drivers.redis.listener import Listener
from noonday.drivers.turns_index import TurnsIndex
from noonday.model.budget import EntryBudget
from noonday.model.errors import IndexUnavailable
from noonday.model.firing import Entry
from noonday.ports.clock import Clock

log = structlog.get_logger("noonday.redis")
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Entry]).decode
_HINT_ENTRIES = 1_000
"""Most entries in one message."""


class HintedHotIndex(TurnsIndex):
    """Hot index that keeps the entries of its own partitions in memory and publishes all others to their owners as hints.

    The hydrator or the sweeper finds entries in the store whose hint was lost. A process that only places entries does not
    listen. The index learns which partitions it owns from the calls of its owner.
    """

    def __init__(
        self,
        connection: Connection,
        clock: Clock,
        lead_ms: int,
        prefix: str = "noonday",
        budget: EntryBudget | None = None,
        on_placed: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_placed` is called when another process placed entries for this one."""
        super().__init__(lead_ms, budget=budget)
        self._connection = connection
        self._channel = f"{prefix}:hints"
        self._listener = Listener(connection, self._channel, clock, on_message=self._on_hint)
        self._on_placed = on_placed

    async def add(self, entries: Sequence[Entry]) -> None:
        ours = self._generations
        self._queue.add(entry for entry in entries if entry.partition in ours)
        hints = [entry for entry in entries if entry.partition not in ours]
        commands: list[Command] = [
            ("PUBLISH", self._channel, _encode(hints[start : start + _HINT_ENTRIES]))
            for start in range(0, len(hints), _HINT_ENTRIES)
        ]
        await self._connection.run(commands, IndexUnavailable)

    async def close(self) -> None:
        await self._listener.close()

    async def _own(self, partitions: Collection[int]) -> None:
        await super()._own(partitions)
        self._listener.start()
        new = [partition for partition in partitions if partition not in self._generations]
        if new:
            # Listen before the index is filled from the store: entries that are committed after that arrive as hints.
            await self._listener.first_attempt()
            self._begin_generations(new)

    def _on_hint(self, message: bytes) -> None:
        try:
            entries = _decode(message)
        except msgspec.DecodeError:
            log.warning("unreadable hint", channel=self._channel)
            return
        ours = [entry for entry in entries if entry.partition in self._generations]
        if ours:
            self._queue.add(ours)
            self._on_placed()
