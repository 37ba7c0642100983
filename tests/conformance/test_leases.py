import asyncio
from collections.abc import Callable

import pytest

from noonday.model.errors import AlreadyRunning
from noonday.model.ids import InstanceId
from noonday.ports.leases import Leases
from tests.support.clock import ManualClock
from tests.support.drivers import Capability
from tests.support.eventually import eventually

ME, YOU = InstanceId("i-1"), InstanceId("i-2")
LONG_SEC = 30.0
"""The timeout of a wait that only a change can end in time."""


async def test_joined_instance_is_a_member_and_keeps_its_lease(new_leases: Callable[[], Leases]) -> None:
    leases = new_leases()
    await leases.join(ME, 2.0)
    assert await leases.members() == {ME: 2.0}
    assert await leases.renew()
    assert await leases.renew()
    await leases.leave()


async def test_instance_that_has_not_joined_has_no_lease(new_leases: Callable[[], Leases]) -> None:
    leases = new_leases()
    assert not await leases.renew()
    assert await leases.members() == {}


async def test_instance_that_left_has_no_lease(new_leases: Callable[[], Leases]) -> None:
    leases = new_leases()
    await leases.join(ME, 1.0)
    await leases.leave()
    assert not await leases.renew()
    assert await leases.members() == {}


async def test_leaving_twice_is_leaving(new_leases: Callable[[], Leases]) -> None:
    leases = new_leases()
    await leases.join(ME, 1.0)
    await leases.leave()
    await leases.leave()
    assert await leases.members() == {}


async def test_a_lease_that_was_given_up_is_free_at_once(new_leases: Callable[[], Leases]) -> None:
    mine, yours = new_leases(), new_leases()
    await mine.join(ME, 1.0)
    await mine.leave()
    await yours.join(YOU, 1.0)
    assert await yours.members() == {YOU: 1.0}
    await yours.leave()


async def test_joining_again_changes_the_name_and_the_weight(new_leases: Callable[[], Leases]) -> None:
    leases = new_leases()
    await leases.join(ME, 1.0)
    await leases.join(YOU, 3.0)
    assert await leases.members() == {YOU: 3.0}
    await leases.leave()


async def test_new_weight_is_set_by_the_renewal_and_stays(new_leases: Callable[[], Leases]) -> None:
    leases = new_leases()
    await leases.join(ME, 1.0)
    assert await leases.renew(0.75)
    assert await leases.renew()
    assert await leases.members() == {ME: 0.75}
    await leases.leave()


async def test_instance_that_left_can_join_again(new_leases: Callable[[], Leases]) -> None:
    leases = new_leases()
    await leases.join(ME, 1.0)
    await leases.leave()
    await leases.join(ME, 1.5)
    assert await leases.renew()
    assert await leases.members() == {ME: 1.5}
    await leases.leave()


async def test_a_stranger_can_neither_renew_nor_end_a_lease(new_leases: Callable[[], Leases]) -> None:
    mine, strangers = new_leases(), new_leases()
    await mine.join(ME, 1.0)
    assert not await strangers.renew(5.0)
    await strangers.leave()
    assert await mine.members() == {ME: 1.0}
    assert await mine.renew()
    await mine.leave()


async def test_a_wait_without_news_ends_with_its_time(new_leases: Callable[[], Leases], clock: ManualClock) -> None:
    leases = new_leases()
    await leases.join(ME, 1.0)
    await leases.members()
    assert await waits_in_vain(leases, clock)
    await leases.leave()


async def test_renewing_is_no_news(new_leases: Callable[[], Leases], clock: ManualClock) -> None:
    leases = new_leases()
    await leases.join(ME, 1.0)
    await leases.members()
    await leases.renew()
    await leases.renew(1.0)
    assert await waits_in_vain(leases, clock)
    await leases.leave()


@pytest.mark.needs(Capability.ONE_INSTANCE)
async def test_second_instance_is_refused_by_a_driver_for_one(new_leases: Callable[[], Leases]) -> None:
    mine, yours = new_leases(), new_leases()
    await mine.join(ME, 1.0)
    with pytest.raises(AlreadyRunning):
        await yours.join(YOU, 1.0)
    assert not await yours.renew()
    assert await mine.renew()
    await mine.leave()


@pytest.mark.needs(Capability.SEVERAL_INSTANCES)
async def test_members_see_each_other(new_leases: Callable[[], Leases]) -> None:
    mine, yours = new_leases(), new_leases()
    await mine.join(ME, 1.0)
    await yours.join(YOU, 2.0)
    assert await mine.members() == await yours.members() == {ME: 1.0, YOU: 2.0}
    await mine.leave()
    assert await yours.members() == {YOU: 2.0}
    await yours.leave()


@pytest.mark.needs(Capability.SEVERAL_INSTANCES)
async def test_name_of_a_member_is_not_given_to_another_instance(new_leases: Callable[[], Leases]) -> None:
    mine, yours = new_leases(), new_leases()
    await mine.join(ME, 1.0)
    with pytest.raises(AlreadyRunning, match="i-1"):
        await yours.join(ME, 2.0)
    assert not await yours.renew(3.0)
    await yours.leave()
    assert await mine.renew()
    assert await yours.members() == {ME: 1.0}
    await mine.leave()
    await yours.join(ME, 2.0)
    assert not await mine.renew()
    assert await yours.members() == {ME: 2.0}
    await yours.leave()


@pytest.mark.needs(Capability.SEVERAL_INSTANCES)
async def test_joining_leaving_and_a_new_weight_are_news_to_others(new_leases: Callable[[], Leases]) -> None:
    mine, yours = new_leases(), new_leases()
    await mine.join(ME, 1.0)
    for act in (lambda: yours.join(YOU, 1.0), lambda: yours.renew(1.5), yours.leave):
        await mine.members()
        waiting = asyncio.create_task(mine.changed(LONG_SEC))
        await asyncio.sleep(0)
        await act()
        assert await waiting
    assert await mine.members() == {ME: 1.0}
    await mine.leave()


@pytest.mark.needs(Capability.SEVERAL_INSTANCES)
async def test_change_of_the_members_is_news_until_they_are_read(
    new_leases: Callable[[], Leases],
) -> None:
    mine, yours = new_leases(), new_leases()
    await mine.join(ME, 1.0)
    await mine.members()
    await yours.join(YOU, 1.0)
    assert await mine.changed(LONG_SEC)
    assert await mine.changed(LONG_SEC)
    await mine.members()
    assert not await mine.changed(0.05)
    await mine.leave()
    await yours.leave()


@pytest.mark.needs(Capability.SEVERAL_INSTANCES)
async def test_member_that_left_and_came_back_is_news(new_leases: Callable[[], Leases]) -> None:
    mine, yours = new_leases(), new_leases()
    await yours.join(YOU, 1.0)
    await mine.members()
    await yours.leave()
    await yours.join(YOU, 1.0)
    assert await mine.changed(LONG_SEC)
    await yours.leave()


@pytest.mark.needs(Capability.SEVERAL_INSTANCES)
async def test_instance_that_is_no_member_sees_the_members_and_their_news(new_leases: Callable[[], Leases]) -> None:
    mine, onlookers = new_leases(), new_leases()
    await mine.join(ME, 1.0)
    assert await onlookers.members() == {ME: 1.0}
    await mine.leave()
    assert await onlookers.changed(LONG_SEC)


async def waits_in_vain(leases: Leases, clock: ManualClock) -> bool:
    """Check that a wait of a tenth of a second ends without news, by the clock of the driver."""
    waiting = asyncio.create_task(leases.changed(0.1))

    def is_over() -> bool:
        clock.advance(0.1)
        return waiting.done()

    await eventually(is_over)
    return not waiting.result()
