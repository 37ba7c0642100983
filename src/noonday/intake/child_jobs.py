"""Child jobs: the jobs that handlers enqueue with `ctx.enqueue`.

There are three steps, and a crash may follow any of them. Before a recorder settles an attempt, it asks `ChildJobAdmission` about
its child jobs: an attempt whose jobs are refused has failed. The transaction that settles the attempt stores its child jobs as
one row. Then `ChildJobCreator` creates the jobs, and deletes the row in the same transaction. Several processes may run it.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial

import msgspec
import structlog

from noonday.crypto.envelope import context_of
from noonday.crypto.keyring import Keyring
from noonday.intake.drafts import CreationContext, Drafter
from noonday.intake.job_service import JobService
from noonday.intake.quotas import Quotas
from noonday.model.alert import MESSAGE_LIMIT, AlertKind, Observation
from noonday.model.caller import Caller
from noonday.model.child_job import ChildJob, WaitingChildren, decode_children
from noonday.model.errors import BadKey, InvalidInput, NoondayError, QuotaExceeded, Unavailable
from noonday.model.execution import Failure, Outcome
from noonday.model.ids import JobId, TenantId
from noonday.model.limits import FAILURE_CHARS
from noonday.model.message import Report
from noonday.ports.alerts import Alerts
from noonday.ports.child_jobs import ChildJobs
from noonday.ports.clock import Clock

log = structlog.get_logger("noonday.intake")
TENANTS = 100
"""Tenants whose child jobs are created in one round."""
ROWS = 8
"""Executions of one tenant whose child jobs are created at once. Then it is the turn of the next tenant."""


class ChildJobAdmission:
    """Decides whether the child jobs of an attempt may be created, before the attempt is settled."""

    def __init__(self, drafter: Drafter, quotas: Quotas, keyring: Keyring, clock: Clock) -> None:
        self._drafter = drafter
        self._quotas = quotas
        self._keyring = keyring
        self._clock = clock

    async def admit(self, reports: Sequence[Report]) -> list[Report]:
        """Return the reports. One whose child jobs are invalid or exceed the quota becomes a failure. Raises Unavailable."""
        admitted: Counter[str] = Counter()
        """Child jobs by tenant that are admitted here, which the store cannot count before they are settled."""
        return [report if report.children is None else await self._judge(report, admitted) for report in reports]

    async def _judge(self, report: Report, admitted: Counter[str]) -> Report:
        assert report.children is not None
        try:
            count = await self._check(report, report.children, admitted[report.tenant])
        except Unavailable:
            raise
        except NoondayError as error:
            return _failed(report, error)
        admitted[report.tenant] += count
        return msgspec.structs.replace(report, children_count=count)

    async def _check(self, report: Report, sealed: bytes, before: int) -> int:
        """Return the number of child jobs. Raises the error of the first one that is refused."""
        tenant = TenantId(report.tenant)
        children = _opened(self._keyring, report.tenant, report.job_id, sealed)
        settings = await self._quotas.settings(tenant)
        caller = caller_for(tenant, report.execution_id)
        context = CreationContext(caller, self._clock.now_ms(), None, settings, None)
        for draft in await self._drafter.draft_children(context, children):
            if isinstance(draft, NoondayError):
                raise draft
        keys = [child.spec.unique_key for child in children]
        with await self._quotas.room(tenant, [*[None] * before, *keys], whole=True) as room:
            room.made = len(children)
        return len(children)


class ChildJobCreator:
    """Creates the child jobs of attempts that are settled. Tenants take turns."""

    def __init__(
        self, child_jobs: ChildJobs, job_service: JobService, alerts: Alerts, keyring: Keyring, clock: Clock
    ) -> None:
        self._child_jobs = child_jobs
        self._job_service = job_service
        self._alerts = alerts
        self._keyring = keyring
        self._clock = clock
        self._after: TenantId | None = None
        """Tenant after which the next round begins. None: with the first one."""

    async def run_once(self, now_ms: int) -> int:
        """Create the child jobs of some executions. Returns of how many.

        Raises BadKey after the last one if some could not be decrypted; those wait.
        """
        ended: list[BaseException | None] = []
        for tenant in await self._tenants():
            rows = await self._child_jobs.waiting(tenant, ROWS)
            # Together, because transactions that wait for a disk share its syncs.
            ended += await asyncio.gather(*(self._create(row) for row in rows), return_exceptions=True)
            _raise_first(error for error in ended if not isinstance(error, BadKey))
        _raise_first(ended)
        return len(ended)

    async def _tenants(self) -> Sequence[TenantId]:
        tenants = await self._child_jobs.tenants(self._after, TENANTS)
        if not tenants and self._after is not None:
            tenants = await self._child_jobs.tenants(None, TENANTS)
        self._after = tenants[-1] if len(tenants) == TENANTS else None
        return tenants

    async def _create(self, waiting: WaitingChildren) -> None:
        children, errors = _readable(self._keyring, waiting)
        caller = caller_for(waiting.tenant, waiting.execution_id)
        errors += await self._job_service.create_children(caller, children, partial(self._child_jobs.create, waiting))
        if errors:
            log.warning(
                "child jobs refused", execution=waiting.execution_id, refused=len(errors), error=errors[0].detail
            )
            await self._alerts.record([self._observation(waiting, errors)])

    def _observation(self, waiting: WaitingChildren, errors: Sequence[NoondayError]) -> Observation:
        message = f"{len(errors)} jobs that this execution enqueued were not created: {errors[0].detail}"
        return Observation(
            kind=AlertKind.MISSED,
            tenant=waiting.tenant,
            about=waiting.job_id,
            message=message[:MESSAGE_LIMIT],
            at_ms=self._clock.now_ms(),
            job_id=waiting.job_id,
            execution_id=waiting.execution_id,
        )


def _raise_first(errors: Iterable[BaseException | None]) -> None:
    for error in errors:
        if error is not None:
            raise error


def caller_for(tenant: TenantId, execution: str) -> Caller:
    """Return the caller in whose name the child jobs of an execution are created."""
    return Caller(tenant, f"execution {execution}", frozenset())


def _readable(keyring: Keyring, waiting: WaitingChildren) -> tuple[list[ChildJob], list[NoondayError]]:
    """Return the child jobs, or the error if another version wrote them in a form that is unknown here. Raises BadKey."""
    try:
        return _opened(keyring, waiting.tenant, waiting.job_id, waiting.children), []
    except InvalidInput as error:
        return [], [error]


def _opened(keyring: Keyring, tenant: str, job: JobId, sealed: bytes) -> list[ChildJob]:
    try:
        return decode_children(keyring.open(sealed, context_of(tenant, job)))
    except msgspec.MsgspecError as error:
        raise InvalidInput(f"the enqueued jobs cannot be read: {error}") from error


def _failed(report: Report, error: NoondayError) -> Report:
    """Return the failure that is settled in place of an attempt whose child jobs are refused.

    Only a quota may admit them later.
    """
    message = f"the jobs that this attempt enqueued were refused: {error.detail}"[:FAILURE_CHARS]
    failure = Failure("EnqueueRefused", message, retryable=isinstance(error, QuotaExceeded))
    return msgspec.structs.replace(
        report, outcome=int(Outcome.FAILED), failure=failure, result=None, children=None, children_count=0, snooze_ms=0
    )
