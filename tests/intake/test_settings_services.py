"""Services of pools, pauses and tenants."""

import pytest

from noonday.model.caller import Caller
from noonday.model.errors import Forbidden, InvalidInput, NotFound
from noonday.model.ids import TenantId
from noonday.model.view import PoolSettings, TenantSettings
from tests.api.engine import Backstage

OPERATOR = Caller(TenantId("acme"), "olga", frozenset({"operator"}))
ADMIN = Caller(TenantId("acme"), "ann", frozenset({"admin"}))
STRANGER = Caller(TenantId("globex"), "bob", frozenset({"admin"}))


async def test_new_pool_can_be_read_at_once(backstage: Backstage) -> None:
    made = await backstage.services.pools.put(OPERATOR, "web", PoolSettings())
    assert (made.name, made.note) == ("web", "no workers")
    assert [pool.name for pool in await backstage.services.pools.list_pools(OPERATOR)] == ["demo", "web"]


async def test_malformed_name_of_a_pool_is_refused(backstage: Backstage) -> None:
    with pytest.raises(InvalidInput):
        await backstage.services.pools.put(OPERATOR, "not a name", PoolSettings())


async def test_unknown_pool_is_not_found(backstage: Backstage) -> None:
    with pytest.raises(NotFound, match="no pool 'web'"):
        await backstage.services.pools.get(OPERATOR, "web")


async def test_backlog_of_all_tenants_needs_an_operator(backstage: Backstage) -> None:
    with pytest.raises(Forbidden):
        await backstage.services.pools.list_pools(ADMIN, all_tenants=True)


async def test_pool_shows_its_pause(backstage: Backstage) -> None:
    await backstage.services.pauses.add(OPERATOR, "POOL", "demo")
    note = (await backstage.services.pools.get(ADMIN, "demo")).note
    assert note is not None
    assert note.startswith("pool 'demo' is paused since")


async def test_pause_of_an_unknown_pool_suggests_the_nearest(backstage: Backstage) -> None:
    with pytest.raises(NotFound, match="did you mean demo"):
        await backstage.services.pauses.add(OPERATOR, "POOL", "dmo")


async def test_removed_pause_is_not_listed(backstage: Backstage) -> None:
    await backstage.services.pauses.add(ADMIN, "TENANT", "acme")
    assert (await backstage.services.pauses.remove(ADMIN, "TENANT", "acme")).pauses == ()


@pytest.mark.parametrize(("kind", "name"), [("POOL", "demo"), ("ALL", ""), ("TENANT", "globex")])
async def test_admin_pauses_only_the_own_tenant(backstage: Backstage, kind: str, name: str) -> None:
    with pytest.raises(Forbidden):
        await backstage.services.pauses.add(ADMIN, kind, name)


async def test_pause_of_a_tenant_is_hidden_from_other_tenants(backstage: Backstage) -> None:
    await backstage.services.pauses.add(ADMIN, "TENANT", "acme")
    assert (await backstage.services.pauses.list_pauses(STRANGER)).pauses == ()
    assert [pause.name for pause in (await backstage.services.pauses.list_pauses(OPERATOR)).pauses] == ["acme"]


async def test_tenant_without_settings_has_the_defaults(backstage: Backstage) -> None:
    view = await backstage.services.tenants.get(ADMIN, "acme")
    assert (view.settings, view.updated_at) == (TenantSettings(), None)


async def test_changed_settings_of_a_tenant_take_effect_at_once(backstage: Backstage) -> None:
    quotas = backstage.services.quotas
    await quotas.settings(TenantId("acme"))
    await backstage.services.tenants.put(OPERATOR, "acme", TenantSettings(max_jobs=7))
    assert (await quotas.settings(TenantId("acme"))).max_jobs == 7


async def test_malformed_name_of_a_tenant_is_refused(backstage: Backstage) -> None:
    with pytest.raises(InvalidInput, match="a tenant's name has"):
        await backstage.services.tenants.put(OPERATOR, "two\nlines", TenantSettings())


async def test_tenant_cannot_read_another_one(backstage: Backstage) -> None:
    with pytest.raises(Forbidden):
        await backstage.services.tenants.get(STRANGER, "acme")
    with pytest.raises(Forbidden):
        await backstage.services.tenants.usage(STRANGER, "acme", 0, 1)
