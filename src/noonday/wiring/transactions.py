"""Create jobs in a transaction of the application."""

from collections.abc import Sequence
from typing import Any

from noonday.drivers.postgres.transactional import CallersConnection, CallersJobs, CallersRegistry
from noonday.intake.catalogue import Catalogue
from noonday.intake.change_sender import ChangeSender
from noonday.intake.drafts import Drafter
from noonday.intake.job_editor import JobEditor
from noonday.intake.job_service import JobService
from noonday.intake.payloads import Payloads
from noonday.intake.presenters import Presenter
from noonday.intake.quotas import Quotas
from noonday.intake.receipts import Receipts
from noonday.model.caller import Caller
from noonday.model.errors import InvalidInput
from noonday.model.ids import JobId, new_job_id
from noonday.model.job import JobSpec
from noonday.model.view import JobView
from noonday.runtime.clock import SystemClock
from noonday.runtime.immediate import run_now
from noonday.wiring.cluster.servers import keyring_of
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
        self._payloads = Payloads(self._keyring, settings.sizes)
        self._tracing = tracing_of(settings)

    async def create(self, caller: Caller, connection: Any, spec: JobSpec) -> JobView:
        return await self._service_on(connection).create(caller, spec)

    async def create_many(self, caller: Caller, connection: Any, specs: Sequence[JobSpec]) -> list[JobId]:
        return await self._service_on(connection).create_ids(caller, specs)

    def create_now(self, caller: Caller, connection: Any, spec: JobSpec) -> JobView:
        """As `create`, on a connection whose calls block. Needs no event loop."""
        return run_now(self._service_on(connection, must_block=True).create(caller, spec))

    def create_many_now(self, caller: Caller, connection: Any, specs: Sequence[JobSpec]) -> list[JobId]:
        return run_now(self._service_on(connection, must_block=True).create_ids(caller, specs))

    def _service_on(self, connection: Any, *, must_block: bool = False) -> JobService:
        callers = CallersConnection(connection, self._schema)
        if must_block and not callers.blocks:
            kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
            raise InvalidInput(
                f"a {kind} needs an event loop: use `await app.enqueue(..., connection=connection)`. app.sync takes a Connection "
                "of psycopg 3 or a connection of Django"
            )
        registry: Any = CallersRegistry(callers)
        jobs, quotas = CallersJobs(callers), Quotas(registry, registry, self._clock)
        receipts = Receipts(jobs, self._keyring, self._clock)
        drafter = Drafter(
            catalogue=Catalogue(registry, self._clock),
            quotas=quotas,
            payloads=self._payloads,
            presenter=self._presenter,
            new_id=new_job_id,
        )
        # Nothing is sent: no job is changed, and no entry is due before the horizon.
        absent: Any = None
        sender = ChangeSender(index=absent, signals=absent, clock=self._clock, hint_ahead_ms=NEVER_MS)
        return JobService(
            jobs=jobs,
            editor=JobEditor(jobs, receipts, sender),
            sender=sender,
            drafter=drafter,
            quotas=quotas,
            query_store=registry,
            receipts=receipts,
            presenter=self._presenter,
            clock=self._clock,
            tracing=self._tracing,
            new_id=new_job_id,
        )
