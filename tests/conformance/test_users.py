import asyncio

import pytest

from noonday.model.errors import Conflict
from noonday.model.ids import TenantId
from noonday.model.notifications.user import UserRow
from noonday.model.receipt import Receipt
from noonday.ports.jobs import Jobs
from noonday.ports.notifications import Users
from tests.support.drivers import Store
from tests.support.factories import NOW_MS, TENANT

OTHER = TenantId("other")
SAM = (TENANT, "sam")
RECEIPT = Receipt(TENANT, "key", "fingerprint", NOW_MS, 200, b"answer")
PROFILE = bytes(range(256))


@pytest.fixture
def users(store: Store) -> Users:
    return store.users


async def test_a_profile_is_found_as_it_was_put(users: Users) -> None:
    put = await users.put(*SAM, PROFILE, NOW_MS)
    assert put == UserRow(TENANT, "sam", put.version, PROFILE, NOW_MS, NOW_MS)
    assert await users.find_many([SAM]) == {SAM: put}


async def test_any_text_is_a_user_id(users: Users) -> None:
    strange = 'sam "the user"\n😀 ${x} %s'
    put = await users.put(TENANT, strange, PROFILE, NOW_MS)
    assert await users.find_many([(TENANT, strange)]) == {(TENANT, strange): put}


async def test_a_profile_that_is_put_again_is_replaced(users: Users) -> None:
    first = await users.put(*SAM, PROFILE, NOW_MS)
    second = await users.put(*SAM, b"other", NOW_MS + 7)
    assert second == UserRow(TENANT, "sam", second.version, b"other", NOW_MS, NOW_MS + 7)
    assert second.version > first.version
    assert await users.find_many([SAM]) == {SAM: second}


@pytest.mark.parametrize("later_ms", [0, -60_000], ids=["at the same time", "by a clock that is behind"])
async def test_versions_grow_whatever_the_clock(users: Users, later_ms: int) -> None:
    versions = [(await users.put(*SAM, PROFILE, NOW_MS + at)).version for at in (0, later_ms, later_ms)]
    assert versions[0] < versions[1] < versions[2]


async def test_a_user_that_was_deleted_gets_a_higher_version(users: Users) -> None:
    first = await users.put(*SAM, PROFILE, NOW_MS)
    await users.delete(*SAM)
    second = await users.put(*SAM, PROFILE, NOW_MS + 1)
    assert second.version > first.version
    assert second.created_ms == NOW_MS + 1


async def test_concurrent_puts_have_different_versions(users: Users) -> None:
    rows = await asyncio.gather(*(users.put(*SAM, str(number).encode(), NOW_MS) for number in range(8)))
    assert len({row.version for row in rows}) == 8
    newest = max(rows, key=lambda row: row.version)
    assert (await users.find_many([SAM]))[SAM].profile == newest.profile


async def test_several_users_are_found_and_tenants_are_apart(users: Users) -> None:
    kim, stranger = (TENANT, "kim"), (OTHER, "sam")
    for each in (SAM, kim, stranger):
        await users.put(TenantId(each[0]), each[1], repr(each).encode(), NOW_MS)
    found = await users.find_many([SAM, stranger, (OTHER, "kim"), SAM])
    assert {key: row.profile for key, row in found.items()} == {each: repr(each).encode() for each in (SAM, stranger)}
    assert await users.find_many([]) == {}


async def test_a_profile_is_deleted_once(users: Users) -> None:
    await users.put(*SAM, PROFILE, NOW_MS)
    await users.put(OTHER, "sam", PROFILE, NOW_MS)
    assert await users.delete(*SAM)
    assert not await users.delete(*SAM)
    assert await users.find_many([SAM]) == {}
    assert (OTHER, "sam") in await users.find_many([(OTHER, "sam")])


async def test_the_answer_is_kept_with_the_profile(users: Users, jobs: Jobs) -> None:
    await users.put(*SAM, PROFILE, NOW_MS, RECEIPT)
    assert await jobs.find_receipt(TENANT, "key") == RECEIPT


async def test_a_repeated_request_changes_nothing(users: Users) -> None:
    put = await users.put(*SAM, PROFILE, NOW_MS, RECEIPT)
    with pytest.raises(Conflict):
        await users.put(*SAM, b"other", NOW_MS + 1, RECEIPT)
    assert await users.find_many([SAM]) == {SAM: put}
