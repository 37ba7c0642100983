"""Client of /v1/dead-letters: executions that failed for good."""

from datetime import datetime
from typing import Any

import msgspec

from noonday.model.filters import DeadFilter
from noonday.model.operation_view import DeadGroupList
from noonday.model.view import BulkView, DeadLetterPage, DeadLetterView, ExecutionView
from noonday.sdk.fields import either
from noonday.sdk.methods import ApiMethods, Listing
from noonday.sdk.transport import path_of


class DeadLetterMethods(ApiMethods):
    """Methods of `Client` on dead letters."""

    def dead_letters(
        self,
        where: DeadFilter | None = None,
        /,
        *,
        cursor: str | None = None,
        limit: int | None = None,
        **conditions: Any,
    ) -> Listing[DeadLetterPage, DeadLetterView]:
        """List dead letters that match a DeadFilter, or its fields by name: `dead_letters(pool="mail")`."""
        query = {**_members(either(where, conditions, DeadFilter)), "limit": limit}
        return self._list(DeadLetterPage, lambda page: page.dead_letters, "/v1/dead-letters", query, cursor)

    async def dead_letter_groups(
        self,
        *,
        job_id: str | None = None,
        pool: str | None = None,
        handler: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> DeadGroupList:
        """Group the newest open dead letters by their error. A `fingerprint` is a condition of `operations.start`."""
        query = {"jobId": job_id, "pool": pool, "handler": handler, "since": since, "until": until}
        return await self._http.get(DeadGroupList, "/v1/dead-letters/groups", query)

    async def retry_dead(self, execution_id: str) -> ExecutionView:
        """Retry a dead letter. Returns the new execution."""
        return await self._http.change(ExecutionView, "POST", path_of("dead-letters", execution_id, "retry"))

    async def archive_dead(self, execution_id: str) -> DeadLetterView:
        return await self._http.change(DeadLetterView, "POST", path_of("dead-letters", execution_id, "archive"))

    async def retry_dead_where(self, where: DeadFilter | None = None, /, **conditions: Any) -> BulkView:
        """Retry up to 1,000 dead letters that match the filter. `more` is true if some are left."""
        filters = either(where, conditions, DeadFilter)
        return await self._http.change(BulkView, "POST", "/v1/dead-letters/retry", filters)

    async def archive_dead_where(self, where: DeadFilter | None = None, /, **conditions: Any) -> BulkView:
        filters = either(where, conditions, DeadFilter)
        return await self._http.change(BulkView, "POST", "/v1/dead-letters/archive", filters)


def _members(value: msgspec.Struct) -> dict[str, Any]:
    members: dict[str, Any] = msgspec.to_builtins(value)
    return members
