"""Whom executions called, as far as their tasks still say it."""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from noonday.intake.views import Viewer
from noonday.model.errors import InvalidInput
from noonday.model.ids import JobId, TenantId
from noonday.model.job import JobState
from noonday.ports.archive import Archive, Definition
from noonday.ports.jobs import Execution
from noonday.tasks.wire import HANDLER, POOL
from noonday.webhooks.urls import read_url

Key = tuple[JobId, int]


class KeptCalls:
    """What tasks said when some executions were fired, or say now if that is not kept."""

    def __init__(self, viewer: Viewer, tenant: TenantId, said: Mapping[Key, Definition]) -> None:
        self._viewer = viewer
        self._tenant = tenant
        self._said = said

    @classmethod
    async def of(
        cls, archive: Archive, viewer: Viewer, tenant: TenantId, executions: Iterable[Execution]
    ) -> "KeptCalls":
        wanted = {(each.job_id, each.revision) for each in executions}
        return cls(viewer, tenant, await archive.definitions(tenant, wanted) if wanted else {})

    def find(self, execution: Execution) -> Definition | None:
        """None if the execution is not one of a task."""
        said = self._said.get((execution.job_id, execution.revision))
        return said if said is not None and _is_task(said) else None

    def find_live(self, execution: Execution) -> Definition | None:
        """None also if the task was deleted."""
        said = self.find(execution)
        return None if said is None or said.state is JobState.CANCELLED else said

    def name_of(self, execution: Execution) -> str | None:
        said = self.find(execution)
        return said.name if said else None

    def url_of(self, execution: Execution) -> str | None:
        said = self.find(execution)
        payload = self._viewer.open(said.payload, self._tenant, execution.job_id) if said else None
        return payload.get("webhook_url") if isinstance(payload, dict) else None


def endpoint_said(url: str | None) -> str | None:
    """The endpoint of a URL in a filter. Raises InvalidInput."""
    if url is None:
        return None
    try:
        return str(read_url(url))
    except InvalidInput as bad:
        raise InvalidInput(bad.detail, [replace(flaw, pointer="/endpoint") for flaw in bad.flaws]) from bad


def _is_task(said: Definition) -> bool:
    return (said.pool, said.handler) == (POOL, HANDLER) and said.endpoint is not None
