"""Jobs that are created by a transaction of the application's own."""

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


class Transactions:
    """Accepts jobs as the job service does, for any connection it is given. It has none of its own, and no engine.

    Nothing is hinted: nobody knows here when the caller commits. The database tells the schedulers when that happens.
    """

    def __init__(self, settings: Settings) -> None:
        self._schema = settings.postgres.schema
        self._clock = SystemClock()
        self._keyring = keyring_of(settings)
        self._presenter = Presenter(self._keyring, settings.logs_url_template)
        self._limits = settings.sizes
        self._tracing = tracing_of(settings)

    async def create(self, caller: Caller, connection: Any, spec: JobSpec) -> JobView:
        return await self._desk_on(connection).create(caller, spec)

    async def create_many(self, caller: Caller, connection: Any, specs: Sequence[JobSpec]) -> list[JobId]:
        return await self._desk_on(connection).create_ids(caller, specs)

    def _desk_on(self, connection: Any) -> JobService:
        callers = CallersConnection(connection, self._schema)
        registry: Any = CallersRegistry(callers)
        absent: Any = None
        return JobService(
            jobs=CallersJobs(callers),
            catalogue=Catalogue(registry, self._clock),
            archive=registry,
            # Creating a job needs none of these.
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
