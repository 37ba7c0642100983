"""Create jobs in a transaction of the application."""

from collections.abc import Sequence
from typing import Any

from noonday.drivers.postgres.transactional import CallersConnection, CallersJobs, CallersRegistry
from noonday.intake.catalogue import Catalogue
from noonday.intake.job_service import JobService
from noonday.intake.presenters import Presenter
from noonday.model.caller import Caller
from noonday.model.ids import JobId
from noonday.model.job import JobSpec
from noonday.model.view import JobView
from noonday.runtime.clock import SystemClock
from noonday.wiring.cluster import keyring_of
from noonday.wiring.settings import Settings
from noonday.wiring.telemetry import tracing_of

NEVER_MS = -(2**62)
"""A horizon in the far past, so that no job is hinted."""


class Transactions:
    """Creates jobs on the caller's connection. It has no connection and no engine of its own.

    It sends no hints, because it does not know when the caller commits. The database notifies the schedulers at the commit.
    """

    def __init__(self, settings: Settings) -> None:
        self._schema = settings.postgres.schema
        self._clock = SystemClock()
        self._keyring = keyring_of(settings)
        self._presenter = Presenter(self._keyring, settings.logs_url_template)
        self._limits = settings.sizes
        self._tracing = tracing_of(settings)

    async def create(self, caller: Caller, connection: Any, spec: JobSpec) -> JobView:
        return await self._service_on(connection).create(caller, spec)

    async def create_many(self, caller: Caller, connection: Any, specs: Sequence[JobSpec]) -> list[JobId]:
        return await self._service_on(connection).create_ids(caller, specs)

    def _service_on(self, connection: Any) -> JobService:
        callers = CallersConnection(connection, self._schema)
        registry: Any = CallersRegistry(callers)
        absent: Any = None
        return JobService(
            jobs=CallersJobs(callers),
            catalogue=Catalogue(registry, self._clock),
            query_store=registry,
            settings_store=registry,
            # `create` and `create_ids` do not use the parts that are absent.
            queries=absent,
            index=absent,
            signals=absent,
            clock=self._clock,
            keyring=self._keyring,
            presenter=self._presenter,
            aside=absent,
            limits=self._limits,
            hint_ahead_ms=NEVER_MS,
            tracing=self._tracing,
        )
