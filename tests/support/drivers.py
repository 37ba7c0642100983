"""Every driver of every port, one line each. A new driver adds its line, and the whole conformance suite runs against it."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from noonday.drivers.memory.bus import MemoryBus
from noonday.drivers.memory.hot_index import MemoryHotIndex
from noonday.drivers.memory.leases import LocalLeases
from noonday.drivers.memory.signals import MemorySignals
from noonday.drivers.sqlite.connection import MEMORY, FileOptions
from noonday.drivers.sqlite.store import open_store
from noonday.ports.archive import Archive
from noonday.ports.bus import Bus
from noonday.ports.executions import Executions
from noonday.ports.firing import Firing
from noonday.ports.hot_index import HotIndex
from noonday.ports.jobs import Jobs
from noonday.ports.leases import Leases
from noonday.ports.signals import Signals
from tests.support.clock import ManualClock

T = TypeVar("T", covariant=True)
LEAD_MS = 300


class Capability(Enum):
    """What drivers of one port may differ in."""

    KEEPS_ITS_LOG = "what was read from the log can be read again"
    ONE_INSTANCE = "only one instance can be a member"
    SEVERAL_INSTANCES = "several instances can be members"


class Store(Protocol):
    """The ports of one store, which see each other's writes."""

    @property
    def jobs(self) -> Jobs: ...
    @property
    def firing(self) -> Firing: ...
    @property
    def executions(self) -> Executions: ...
    @property
    def archive(self) -> Archive: ...


@dataclass(frozen=True)
class Driver(Generic[T]):
    name: str
    open: Callable[[Path, ManualClock], AbstractAsyncContextManager[T]]
    """Given an empty folder and a clock."""
    capabilities: frozenset[Capability] = frozenset()


def sqlite(place: Callable[[Path], str]) -> Callable[[Path, ManualClock], AbstractAsyncContextManager[Store]]:
    @asynccontextmanager
    async def opened(folder: Path, clock: ManualClock) -> AsyncIterator[Store]:
        store = open_store(place(folder), FileOptions(synchronous="OFF"), LEAD_MS)
        yield store
        await store.close()

    return opened


def plain(make: Callable[[Path, ManualClock], T]) -> Callable[[Path, ManualClock], AbstractAsyncContextManager[T]]:
    """Of a driver that needs no opening and no closing."""

    @asynccontextmanager
    async def opened(folder: Path, clock: ManualClock) -> AsyncIterator[T]:
        yield make(folder, clock)

    return opened


STORES: list[Driver[Store]] = [
    Driver("sqlite-inline", sqlite(lambda folder: MEMORY)),
    Driver("sqlite-file", sqlite(lambda folder: str(folder / "noonday.db"))),
]
HOT_INDEXES: list[Driver[HotIndex]] = [
    Driver("memory", plain(lambda folder, clock: MemoryHotIndex(LEAD_MS))),
]
BUSES: list[Driver[Bus]] = [
    Driver("memory", plain(lambda folder, clock: MemoryBus(clock))),
]
SIGNALS: list[Driver[Signals]] = [
    Driver("memory", plain(lambda folder, clock: MemorySignals())),
]
LEASES: list[Driver[Callable[[], Leases]]] = [
    Driver(
        "local", plain(lambda folder, clock: lambda: LocalLeases(folder / "lock")), frozenset({Capability.ONE_INSTANCE})
    ),
]
"""Of leases several are opened: each call makes those of one more instance."""
