"""Entries of the audit log."""

import pytest

from noonday.intake.audit import audit_entry
from noonday.model.audit import EVERY_TENANT
from noonday.model.caller import Caller
from noonday.model.errors import InvalidInput
from noonday.model.ids import TenantId
from noonday.model.view import PoolSettings, TenantSettings
from tests.api.engine import Backstage

ANN = Caller(TenantId("acme"), "ann", frozenset({"operator"}))


def test_entry_concerns_the_tenant_of_its_caller() -> None:
    entry = audit_entry(ANN, "job.pause", "j1", 7, {"why": "test"})
    assert (entry.tenant, entry.at_ms, entry.subject, entry.target) == ("acme", 7, "ann", "j1")
    assert entry.detail == {"why": "test"}


@pytest.mark.parametrize("tenant", [TenantId("globex"), EVERY_TENANT])
def test_entry_for_another_tenant_names_the_tenant_of_its_caller(tenant: TenantId) -> None:
    entry = audit_entry(ANN, "tenant.put", "globex", 7, tenant=tenant)
    assert (entry.tenant, entry.detail) == (tenant, {"byTenant": "acme"})


@pytest.mark.slow
async def test_entries_are_listed_in_pages_newest_first(backstage: Backstage) -> None:
    for most in (1, 2, 3):
        await backstage.services.tenants.put(ANN, "acme", TenantSettings(max_jobs=most))
    first = await backstage.services.audit.list_entries(ANN, target="acme", limit=2)
    rest = await backstage.services.audit.list_entries(ANN, target="acme", cursor=first.next, limit=2)
    assert [entry.detail["maxJobs"] for entry in (*first.entries, *rest.entries)] == [3, 2, 1]
    assert rest.next is None


async def test_entries_can_be_filtered_by_target(backstage: Backstage) -> None:
    await backstage.services.tenants.put(ANN, "acme", TenantSettings())
    await backstage.services.pools.put(ANN, "web", PoolSettings())
    found = await backstage.services.audit.list_entries(ANN, target="acme")
    assert [entry.action for entry in found.entries] == ["tenant.put"]


async def test_malformed_cursor_is_refused(backstage: Backstage) -> None:
    with pytest.raises(InvalidInput, match="not a cursor of this list"):
        await backstage.services.audit.list_entries(ANN, cursor="x")
