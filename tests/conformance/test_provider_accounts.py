from typing import Any

import msgspec
import pytest

from noonday.model.errors import Conflict
from noonday.model.ids import TenantId
from noonday.model.notifications.sending import ProviderKind, ProviderLimits
from noonday.model.notifications.user import AccountRow
from noonday.model.receipt import Receipt
from noonday.ports.jobs import Jobs
from noonday.ports.notifications import ProviderAccounts
from tests.support.drivers import Store, execute, read_value
from tests.support.factories import NOW_MS, TENANT, audit

OTHER = TenantId("other")
RECEIPT = Receipt(TENANT, "key", "fingerprint", NOW_MS, 200, b"answer")


@pytest.fixture
def accounts(store: Store) -> ProviderAccounts:
    return store.provider_accounts


def account(name: str = "main", **fields: Any) -> AccountRow:
    return AccountRow(
        **{
            "tenant": TENANT,
            "name": name,
            "kind": ProviderKind.TWILIO,
            "order": 1,
            "limits": ProviderLimits(),
            "settings": {},
            "secrets": b"ciphertext",
            "version": 0,
            "created_ms": NOW_MS,
            "updated_ms": NOW_MS,
            **fields,
        }
    )


async def put(
    accounts: ProviderAccounts, wanted: AccountRow, *, most: int = 100, receipt: Receipt | None = None
) -> bool:
    entry = audit("provider-account.put", wanted.updated_ms, tenant=TenantId(wanted.tenant))
    return await accounts.put(wanted, most, entry, receipt)


async def delete(accounts: ProviderAccounts, name: str = "main", tenant: TenantId = TENANT) -> bool:
    return await accounts.delete(tenant, name, audit("provider-account.delete", NOW_MS, tenant=tenant))


async def found(accounts: ProviderAccounts, name: str = "main", tenant: TenantId = TENANT) -> AccountRow:
    row = await accounts.find(tenant, name)
    assert row is not None
    return row


async def test_an_account_is_kept_as_it_was_put(accounts: ProviderAccounts) -> None:
    wanted = account(
        kind=ProviderKind.APNS,
        order=7,
        limits=ProviderLimits(rate_per_sec=0.5, max_concurrency=3),
        settings={"team": "T", "sandbox": True, "ports": [587, 2525], "nested": {"à": None}},
        secrets=bytes(range(256)),
    )
    assert await put(accounts, wanted)
    kept = await found(accounts)
    assert kept == msgspec.structs.replace(wanted, version=kept.version)
    assert await accounts.accounts_of([TENANT]) == [kept]


async def test_an_account_that_is_put_again_is_replaced(accounts: ProviderAccounts) -> None:
    await put(accounts, account())
    first = await found(accounts)
    again = account(
        kind=ProviderKind.SMTP, order=2, settings={"host": "mail"}, created_ms=NOW_MS + 1, updated_ms=NOW_MS + 1
    )
    await put(accounts, again)
    kept = await found(accounts)
    assert kept == msgspec.structs.replace(again, version=kept.version, created_ms=NOW_MS)
    assert kept.version > first.version


@pytest.mark.parametrize("later_ms", [0, -60_000], ids=["at the same time", "by a clock that is behind"])
async def test_versions_of_an_account_grow_whatever_the_clock(accounts: ProviderAccounts, later_ms: int) -> None:
    versions = []
    for at in (0, later_ms, later_ms):
        await put(accounts, account(updated_ms=NOW_MS + at))
        versions.append((await found(accounts)).version)
    assert versions[0] < versions[1] < versions[2]


async def test_an_account_that_was_deleted_gets_a_higher_version(accounts: ProviderAccounts) -> None:
    await put(accounts, account())
    first = await found(accounts)
    await delete(accounts)
    await put(accounts, account(updated_ms=NOW_MS + 1))
    assert (await found(accounts)).version > first.version


async def test_accounts_come_by_tenant_order_and_name(accounts: ProviderAccounts) -> None:
    for tenant, name, order in (
        (OTHER, "x", 1),
        (TENANT, "b", 2),
        (TENANT, "c", 1),
        (TENANT, "a", 2),
        ("third", "y", 1),
    ):
        await put(accounts, account(name, tenant=tenant, order=order))
    assert [each.name for each in await accounts.accounts_of([OTHER, TENANT, TENANT])] == ["c", "a", "b", "x"]
    assert await accounts.accounts_of([]) == []
    assert await accounts.accounts_of(["nobody"]) == []


async def test_a_tenant_has_only_so_many_accounts(accounts: ProviderAccounts, jobs: Jobs) -> None:
    assert await put(accounts, account("a"), most=1)
    assert not await put(accounts, account("b"), most=1, receipt=RECEIPT)
    assert await jobs.find_receipt(TENANT, "key") is None
    assert await put(accounts, account("a", order=2), most=1)
    assert await put(accounts, account("b", tenant=OTHER), most=1)
    assert [each.name for each in await accounts.accounts_of([TENANT])] == ["a"]


async def test_whether_any_tenant_has_an_account_is_known(accounts: ProviderAccounts) -> None:
    assert not await accounts.has_any()
    await put(accounts, account(tenant=OTHER))
    assert await accounts.has_any()
    await delete(accounts, tenant=OTHER)
    assert not await accounts.has_any()


async def test_an_account_is_deleted_once(accounts: ProviderAccounts) -> None:
    await put(accounts, account())
    await put(accounts, account(tenant=OTHER))
    assert await delete(accounts)
    assert not await delete(accounts)
    assert await accounts.find(TENANT, "main") is None
    assert await accounts.find(OTHER, "main") is not None


async def test_changes_of_accounts_are_audited_and_refused_ones_are_not(
    accounts: ProviderAccounts, store: Store
) -> None:
    await put(accounts, account())
    await put(accounts, account("another"), most=1)
    await delete(accounts)
    await delete(accounts)
    count = "SELECT count(*) FROM audit WHERE action LIKE 'provider-account.%'"
    assert await read_value(store, count) == 2


async def test_a_repeated_request_changes_no_account(accounts: ProviderAccounts, jobs: Jobs) -> None:
    await put(accounts, account(), receipt=RECEIPT)
    assert await jobs.find_receipt(TENANT, "key") == RECEIPT
    kept = await found(accounts)
    with pytest.raises(Conflict):
        await put(accounts, account(order=9, updated_ms=NOW_MS + 1), receipt=RECEIPT)
    assert await found(accounts) == kept


# Faults


async def test_a_fault_stops_an_account_until_it_is_put_again(accounts: ProviderAccounts) -> None:
    await put(accounts, account())
    kept = await found(accounts)
    assert await accounts.stop(TENANT, "main", kept.version, "401", NOW_MS + 5)
    assert await found(accounts) == msgspec.structs.replace(kept, fault="401", fault_ms=NOW_MS + 5)
    await put(accounts, account(updated_ms=NOW_MS + 9))
    mended = await found(accounts)
    assert (mended.fault, mended.fault_ms) == (None, None)


async def test_the_first_fault_stays(accounts: ProviderAccounts) -> None:
    await put(accounts, account())
    version = (await found(accounts)).version
    assert await accounts.stop(TENANT, "main", version, "401", NOW_MS + 5)
    assert await accounts.stop(TENANT, "main", version, "403", NOW_MS + 6)
    stopped = await found(accounts)
    assert (stopped.fault, stopped.fault_ms) == ("401", NOW_MS + 5)


async def test_a_late_fault_does_not_stop_an_account_that_has_changed(accounts: ProviderAccounts) -> None:
    await put(accounts, account())
    former = (await found(accounts)).version
    await put(accounts, account())
    assert not await accounts.stop(TENANT, "main", former, "401", NOW_MS + 5)
    await delete(accounts)
    await put(accounts, account(updated_ms=NOW_MS + 10))
    assert not await accounts.stop(TENANT, "main", former, "401", NOW_MS + 11)
    assert (await found(accounts)).fault is None


async def test_a_fault_of_a_tenant_stops_no_account_of_another(accounts: ProviderAccounts) -> None:
    await put(accounts, account())
    await put(accounts, account(tenant=OTHER))
    await put(accounts, account("another"))
    version = (await found(accounts)).version
    assert await accounts.stop(TENANT, "main", version, "401", NOW_MS)
    assert (await found(accounts, tenant=OTHER)).fault is None
    assert (await found(accounts, "another")).fault is None
    assert not await accounts.stop(TENANT, "nothing", version, "401", NOW_MS)


async def test_limits_of_a_newer_version_are_read(accounts: ProviderAccounts, store: Store) -> None:
    await put(accounts, account(limits=ProviderLimits(max_concurrency=3)))
    await execute(store, """UPDATE provider_accounts SET limits = '{"max_concurrency": 3, "per_day": 9}'""")
    assert (await found(accounts)).limits == ProviderLimits(max_concurrency=3)
