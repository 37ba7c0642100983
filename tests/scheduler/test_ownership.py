"""Who owns which partitions, and when an instance stops firing."""

from collections.abc import AsyncIterator, Collection

import pytest

from noonday.drivers.memory.bus import MemoryBus
from noonday.drivers.memory.hot_index import MemoryHotIndex
from noonday.drivers.sqlite.connection import MEMORY, FileOptions
from noonday.drivers.sqlite.store import SqliteStore, open_store
from noonday.model.errors import LeasesUnavailable
from noonday.model.ids import PARTITIONS, InstanceId
from noonday.scheduler.ownership import ADOPT_OWN_AFTER_MS, Ownership
from tests.support.clock import ManualClock
from tests.support.leases import TTL_SEC, LeaseServer, SharedLeases

ALL = set(range(PARTITIONS))


class Member:
    """One instance, and the partitions that it was told to fill again."""

    def __init__(self, name: str, store: SqliteStore, server: LeaseServer, clock: ManualClock) -> None:
        self.name, self.clock = InstanceId(name), clock
        self.gained: list[set[int]] = []
        self.index = MemoryHotIndex(0)
        self.ownership = Ownership(
            self.name,
            SharedLeases(server),
            store.firing,
            self.index,
            MemoryBus(clock),
            clock,
            on_gained=self._note_gained,
        )

    def _note_gained(self, partitions: Collection[int]) -> None:
        self.gained.append(set(partitions))

    @property
    def owned(self) -> set[int]:
        return set(self.ownership.partitions)

    async def turn(self) -> None:
        """Complete a round of everything: store, bus and lease."""
        self.ownership.note_store_round()
        await self.ownership.check_bus()
        await self.ownership.run_once(self.clock.now_ms())


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def server(clock: ManualClock) -> LeaseServer:
    return LeaseServer(clock)


@pytest.fixture
async def store() -> AsyncIterator[SqliteStore]:
    store = open_store(MEMORY, FileOptions(), lead_ms=0)
    yield store
    await store.close()


@pytest.fixture
async def one(store: SqliteStore, server: LeaseServer, clock: ManualClock) -> Member:
    member = Member("i-1", store, server, clock)
    await member.ownership.join()
    return member


@pytest.fixture
def two(store: SqliteStore, server: LeaseServer, clock: ManualClock) -> Member:
    """Another instance, which has not joined yet."""
    return Member("i-2", store, server, clock)


async def test_single_instance_owns_every_partition(one: Member) -> None:
    assert one.owned == ALL
    assert one.gained == [ALL]


async def test_two_instances_share_the_partitions(one: Member, two: Member) -> None:
    await two.ownership.join()
    await one.turn()
    assert one.owned | two.owned == ALL
    assert not one.owned & two.owned
    assert one.owned
    assert two.owned


async def test_take_over_raises_the_epoch_so_that_the_former_owner_is_refused(one: Member, two: Member) -> None:
    before = dict(one.ownership.owner.epochs)
    await two.ownership.join()
    for partition, epoch in two.ownership.owner.epochs.items():
        assert epoch > before[partition]


async def test_partitions_that_another_instance_took_are_dropped_and_forgotten(one: Member, two: Member) -> None:
    before = await one.index.generations(ALL)
    await two.ownership.join()
    await one.turn()
    await one.turn()
    assert one.owned == ALL - two.owned
    after = await one.index.generations(ALL)
    assert {partition for partition in ALL if before[partition] != after[partition]} == two.owned


async def test_share_of_a_member_that_lapsed_is_taken_over(one: Member, two: Member, clock: ManualClock) -> None:
    await two.ownership.join()
    await one.turn()
    clock.advance(TTL_SEC / 2)
    await one.turn()
    clock.advance(TTL_SEC / 2 + 1)
    await one.turn()
    assert one.owned == ALL


async def test_instance_that_leaves_gives_up_its_partitions_at_once(one: Member, two: Member) -> None:
    await two.ownership.join()
    await one.turn()
    await two.ownership.leave()
    assert two.owned == set()
    await one.turn()
    assert one.owned == ALL


async def test_owner_continues_while_the_lease_cannot_have_lapsed(
    one: Member, server: LeaseServer, clock: ManualClock
) -> None:
    server.is_away = True
    clock.advance(TTL_SEC)
    with pytest.raises(LeasesUnavailable):
        await one.turn()
    assert one.owned == ALL


async def test_owner_whose_lease_is_in_doubt_owns_nothing(one: Member, server: LeaseServer, clock: ManualClock) -> None:
    server.is_away = True
    clock.advance(TTL_SEC + 0.1)
    with pytest.raises(LeasesUnavailable):
        await one.turn()
    assert one.owned == set()


async def test_partitions_that_nobody_had_in_between_need_no_refill(
    one: Member, server: LeaseServer, clock: ManualClock
) -> None:
    server.is_away = True
    clock.advance(TTL_SEC + 0.1)
    with pytest.raises(LeasesUnavailable):
        await one.turn()
    server.is_away = False
    for _ in range(3):
        await one.turn()
    assert one.owned == ALL
    assert one.gained == [ALL]


async def test_refused_instance_drops_all_and_waits_until_the_members_are_known(
    one: Member, clock: ManualClock
) -> None:
    """Its members are outdated: it would take back what the new owner has."""
    one.ownership.lose((3,))
    assert one.owned == set()
    clock.advance(1)
    await one.turn()
    assert one.owned == set()
    clock.advance(TTL_SEC - 0.5)
    await one.turn()
    assert one.owned == ALL


async def test_instance_without_a_completed_round_gives_up_its_lease(
    one: Member, server: LeaseServer, clock: ManualClock
) -> None:
    """It cannot fire or publish, so others should."""
    for _ in range(5):
        clock.advance(TTL_SEC / 2)
        await one.ownership.run_once(clock.now_ms())
    assert one.owned == set()
    assert server.leases == {}


async def test_instance_that_gave_up_joins_again_after_a_round_with_store_and_bus(
    one: Member, clock: ManualClock
) -> None:
    for _ in range(5):
        clock.advance(TTL_SEC / 2)
        await one.ownership.run_once(clock.now_ms())
    await one.ownership.run_once(clock.now_ms())
    assert one.owned == ALL


async def test_batch_of_a_member_is_left_to_that_member(one: Member, two: Member) -> None:
    await two.ownership.join()
    await one.turn()
    assert not one.ownership.may_adopt(two.name, 10**9)


async def test_batch_of_a_former_member_is_adopted_by_exactly_one_instance(one: Member, two: Member) -> None:
    await two.ownership.join()
    await one.turn()
    gone = InstanceId("gone")
    assert [one.ownership.may_adopt(gone, 0), two.ownership.may_adopt(gone, 0)].count(True) == 1


async def test_own_batch_is_adopted_once_its_publisher_has_had_time(one: Member) -> None:
    assert not one.ownership.may_adopt(one.name, ADOPT_OWN_AFTER_MS)
    assert one.ownership.may_adopt(one.name, ADOPT_OWN_AFTER_MS + 1)
