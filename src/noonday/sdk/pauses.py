"""Client of /v1/pauses: pauses of tenants, of pools, and of everything."""

from noonday.model.view import PauseList, PauseView
from noonday.sdk.methods import ApiMethods
from noonday.sdk.transport import path_of


class PauseMethods(ApiMethods):
    """Methods of `Client` on pauses."""

    async def pauses(self) -> tuple[PauseView, ...]:
        """Return the pauses of tenants, of pools, and of everything."""
        return (await self._http.get(PauseList, "/v1/pauses")).pauses

    async def pause_pool(self, name: str) -> tuple[PauseView, ...]:
        """Pause a pool: its due jobs wait, new jobs are still accepted. Needs scope operator. Returns all pauses."""
        return await self._change_pauses("pools", name, "pause")

    async def pause_tenant(self, tenant: str) -> tuple[PauseView, ...]:
        """Pause a tenant, as `pause_pool`. Needs scope admin for the caller's own tenant, else operator."""
        return await self._change_pauses("tenants", tenant, "pause")

    async def pause_all(self) -> tuple[PauseView, ...]:
        """Pause everything, as `pause_pool`. Needs scope operator."""
        return await self._change_pauses("pause")

    async def resume_pool(self, name: str) -> tuple[PauseView, ...]:
        """Resume a pool. Due work starts as capacity allows. Needs the same scope as its pause. Returns all pauses."""
        return await self._change_pauses("pools", name, "resume")

    async def resume_tenant(self, tenant: str) -> tuple[PauseView, ...]:
        return await self._change_pauses("tenants", tenant, "resume")

    async def resume_all(self) -> tuple[PauseView, ...]:
        """Resume after `pause_all`. Pauses of pools and tenants remain."""
        return await self._change_pauses("resume")

    async def _change_pauses(self, *path: str) -> tuple[PauseView, ...]:
        return (await self._http.change(PauseList, "POST", path_of(*path))).pauses
