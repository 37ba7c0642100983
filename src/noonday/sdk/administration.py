"""Client of /v1/pools, /v1/tenants, /v1/workers, /v1/audit and /v1/overview, and of the health of the server."""

from datetime import date
from typing import Any

import msgspec

from noonday.model.view import (
    AuditPage,
    AuditView,
    PoolSettings,
    PoolView,
    TenantSettings,
    TenantView,
    UsageView,
    WorkerView,
)
from noonday.sdk.methods import ApiMethods, Listing
from noonday.sdk.transport import path_of


class AdministrationMethods(ApiMethods):
    """Methods of `Client` on pools, tenants, workers, the audit log and the server itself."""

    async def pools(self, *, all_tenants: bool = False) -> list[PoolView]:
        """Return the pools with the tenant's backlog, or with that of all tenants (needs scope operator)."""
        return (await self._http.get(_Pools, "/v1/pools", _scope_query(all_tenants))).pools

    async def get_pool(self, name: str) -> PoolView:
        return await self._http.get(PoolView, path_of("pools", name))

    async def put_pool(self, name: str, settings: PoolSettings) -> PoolView:
        return await self._http.change(PoolView, "PUT", path_of("pools", name), settings)

    async def workers(self) -> list[WorkerView]:
        return (await self._http.get(_Workers, "/v1/workers")).workers

    def audit(
        self,
        *,
        target: str | None = None,
        subject: str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> Listing[AuditPage, AuditView]:
        """List changes and who made them, newest first. Needs scope admin."""
        query = {"target": target, "subject": subject, "limit": limit}
        return self._list(AuditPage, lambda page: page.entries, "/v1/audit", query, cursor)

    async def get_tenant(self, tenant: str) -> TenantView:
        return await self._http.get(TenantView, path_of("tenants", tenant))

    async def put_tenant(self, tenant: str, settings: TenantSettings) -> TenantView:
        return await self._http.change(TenantView, "PUT", path_of("tenants", tenant), settings)

    async def usage(self, tenant: str, from_: date | None = None, to: date | None = None) -> UsageView:
        """Return the daily usage of a tenant (UTC). Both days are inclusive; the default is the last 30 days."""
        return await self._http.get(UsageView, path_of("tenants", tenant, "usage"), {"from": from_, "to": to})

    async def overview(self, *, all_tenants: bool = False) -> dict[str, Any]:
        """Return the tenant's backlog, or that of all tenants with rate and lateness (needs scope operator)."""
        return await self._http.get(dict[str, Any], "/v1/overview", _scope_query(all_tenants))

    async def proof(self, nonce: str) -> str:
        """Return the server's proof for a nonce. Raises NotFound if it has no shared secret."""
        return (await self._http.get(dict[str, str], "/proof", {"nonce": nonce})).get("proof", "")

    async def health(self) -> dict[str, Any]:
        """Return the health of the server. Raises ServerUnreachable if it does not respond."""
        return await self._http.get(dict[str, Any], "/healthz")


class _Pools(msgspec.Struct):
    pools: list[PoolView]


class _Workers(msgspec.Struct):
    workers: list[WorkerView]


def _scope_query(all_tenants: bool) -> dict[str, Any]:
    return {"scope": "all"} if all_tenants else {}
