from collections.abc import Callable

import pytest

from noonday.model.errors import AlreadyRunning
from noonday.model.ids import InstanceId
from noonday.ports.leases import Leases
from tests.support.drivers import Capability

ME, YOU = InstanceId("i-1"), InstanceId("i-2")


async def test_whoever_joined_is_a_member_and_keeps_its_lease(new_leases: Callable[[], Leases]) -> None:
    leases = new_leases()
    await leases.join(ME, 2.0)
    assert await leases.members() == {ME: 2.0}
    assert await leases.renew()
    assert await leases.renew()
    await leases.leave()


async def test_whoever_has_not_joined_has_no_lease(new_leases: Callable[[], Leases]) -> None:
    leases = new_leases()
    assert not await leases.renew()
    assert await leases.members() == {}


async def test_whoever_left_has_no_lease(new_leases: Callable[[], Leases]) -> None:
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


@pytest.mark.needs(Capability.ONE_INSTANCE)
async def test_where_only_one_can_be_a_second_is_told_so(new_leases: Callable[[], Leases]) -> None:
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
