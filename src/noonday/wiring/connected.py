"""What an application does with jobs, in its own engine or on a server that it is connected to."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from noonday.model.ids import JobId
from noonday.model.job import JobSpec
from noonday.model.job_fields import Duration
from noonday.model.view import ExecutionView, JobView
from noonday.sdk.client import Client


class JobCommands(Protocol):
    """The commands on jobs behind `app.enqueue`, `enqueue_many`, `result` and `cancel`."""

    async def create(self, spec: JobSpec) -> JobView: ...
    async def create_many(self, specs: Sequence[JobSpec]) -> list[JobId]: ...
    async def success(self, of: JobView | ExecutionView | str, timeout: Duration | None) -> ExecutionView: ...
    async def cancel(self, execution: str) -> ExecutionView: ...


class Connected:
    """Commands on the jobs of a server, over its API."""

    def __init__(self, client: Client, loop: asyncio.AbstractEventLoop) -> None:
        self._client = client
        self.loop = loop
        """The event loop that the client is used on."""

    async def create(self, spec: JobSpec) -> JobView:
        return await self._client.create(spec)

    async def create_many(self, specs: Sequence[JobSpec]) -> list[JobId]:
        return await self._client.create_ids(specs)

    async def success(self, of: JobView | ExecutionView | str, timeout: Duration | None) -> ExecutionView:
        return await self._client.success(of, timeout)

    async def cancel(self, execution: str) -> ExecutionView:
        return await self._client.cancel(execution)
