"""Task definitions that past executions were fired with."""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from noonday.intake.presenters import Presenter
from noonday.model.errors import InvalidInput
from noonday.model.execution import Execution
from noonday.model.ids import JobId, TenantId
from noonday.model.job import JobState
from noonday.model.rows import Definition
from noonday.model.tasks.wire import HANDLER, POOL
from noonday.model.url import read_url
from noonday.ports.queries import QueryStore

Key = tuple[JobId, int]


class TaskDefinitions:
    """Definitions of tasks as they were when executions fired, or the current ones if the old ones are deleted."""

    def __init__(self, presenter: Presenter, tenant: TenantId, definitions: Mapping[Key, Definition]) -> None:
        self._presenter = presenter
        self._tenant = tenant
        self._definitions = definitions

    @classmethod
    async def read(
        cls, query_store: QueryStore, presenter: Presenter, tenant: TenantId, executions: Iterable[Execution]
    ) -> "TaskDefinitions":
        """Read the definitions of these executions."""
        revisions = {(each.job_id, each.revision) for each in executions}
        return cls(presenter, tenant, await query_store.definitions(tenant, revisions) if revisions else {})

    def find(self, execution: Execution) -> Definition | None:
        """Return the definition of an execution, or None if it is not an execution of a task."""
        definition = self._definitions.get((execution.job_id, execution.revision))
        return definition if definition is not None and _is_task(definition) else None

    def find_live(self, execution: Execution) -> Definition | None:
        """Return the definition as `find` does, but None also if the task was deleted."""
        definition = self.find(execution)
        return None if definition is None or definition.state is JobState.CANCELLED else definition

    def name_of(self, execution: Execution) -> str | None:
        definition = self.find(execution)
        return definition.name if definition else None

    def url_of(self, execution: Execution) -> str | None:
        """Return the URL that an execution called, or None if it cannot be decrypted or is not a task's."""
        definition = self.find(execution)
        payload = self._presenter.open(definition.payload, self._tenant, execution.job_id) if definition else None
        return payload.get("webhook_url") if isinstance(payload, dict) else None


def endpoint_of_url(url: str | None) -> str | None:
    """Return the endpoint of a URL in a filter. Raises InvalidInput."""
    if url is None:
        return None
    try:
        return str(read_url(url))
    except InvalidInput as bad:
        raise InvalidInput(bad.detail, [replace(flaw, pointer="/endpoint") for flaw in bad.flaws]) from bad


def _is_task(definition: Definition) -> bool:
    return (definition.pool, definition.handler) == (POOL, HANDLER) and definition.endpoint is not None
