"""The hot index in the owner's process. Other processes send it the entries that they place, through Redis."""

from collections.abc import Callable, Collection, Container, Mapping, Sequence

import msgspec
import structlog
import uuid_utils

from noonday.drivers.redis.connection import Command, Connection
from noonday.drivers.redis.listener import Listener
from noonday.model.budget import EntryBudget
from noonday.model.errors import IndexUnavailable
from noonday.model.firing import Entry
from noonday.model.shares import EQUAL, Shares, Within
from noonday.model.turns import MOST_OF_A_TENANT, TimelinePosition, Turns
from noonday.ports.clock import Clock
from noonday.ports.hot_index import HotIndex

log = structlog.get_logger("noonday.redis")
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Entry]).decode
_HINT_ENTRIES = 1_000
"""Most entries in one message."""


class HintedHotIndex(HotIndex):
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
        self._connection = connection
        self._channel = f"{prefix}:hints"
        self._queue = Turns(lead_ms, MOST_OF_A_TENANT, budget or EntryBudget())
        self._generations: dict[int, str] = {}
        """Generations of the partitions that this process owns."""
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

    async def claim(
        self,
        now_ms: int,
        partitions: Collection[int],
        credit: Mapping[str, int],
        limit: int,
        shares: Shares = EQUAL,
    ) -> list[Entry]:
        await self._own(partitions)
        return self._queue.claim(now_ms, credit, limit, shares)

    def omitted(self) -> Mapping[str, TimelinePosition]:
        return self._queue.omitted()

    def room(self) -> int:
        return self._queue.room()

    def readmit(self, tenant: str, until: TimelinePosition | None) -> None:
        self._queue.readmit(tenant, until)

    async def missing(self, entries: Sequence[Entry]) -> list[Entry]:
        return self._queue.missing(entries)

    def waiting(self, now_ms: int, credit: Mapping[str, int], tenants: Container[str]) -> Mapping[tuple[str, str], int]:
        return self._queue.waiting(now_ms, credit, tenants)

    async def next_ready_ms(
        self,
        partitions: Collection[int],
        credit: Mapping[str, int],
        patience_ms: int = 0,
        blocked: Container[Within] = (),
    ) -> int | None:
        await self._own(partitions)
        return self._queue.next_ready_ms(credit, patience_ms, blocked)

    async def generations(self, partitions: Collection[int]) -> Mapping[int, str]:
        await self._own(partitions)
        return {partition: self._generations[partition] for partition in partitions}

    async def forget(self, partitions: Collection[int]) -> None:
        for partition in partitions:
            self._generations.pop(partition, None)
        self._queue.drop(partitions)

    def size(self) -> int:
        return len(self._queue)

    async def close(self) -> None:
        await self._listener.close()

    async def _own(self, partitions: Collection[int]) -> None:
        self._queue.own(partitions)
        self._listener.start()
        new = [partition for partition in partitions if partition not in self._generations]
        if new:
            # Listen before the index is filled from the store: entries that are committed after that arrive as hints.
            await self._listener.first_attempt()
            for partition in new:
                self._generations.setdefault(partition, str(uuid_utils.uuid4()))

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
