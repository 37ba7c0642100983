"""Drafts: valid jobs that are not stored yet."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from noonday.intake import edits
from noonday.intake.catalogue import Catalogue
from noonday.intake.payloads import Payloads
from noonday.intake.presenters import Presenter
from noonday.intake.quotas import QuotaReservation, Quotas
from noonday.model.caller import Caller
from noonday.model.change import NewJob
from noonday.model.child_job import ChildJob
from noonday.model.errors import FLAWS_OF_BATCH, Flaw, InvalidInput, NoondayError, Unavailable
from noonday.model.ids import JobId
from noonday.model.job import Job, JobSpec, JobState, anchor_of, check, with_default_spread
from noonday.model.view import TenantSettings

DRAFTS_A_TURN = 50
"""Number of jobs of a batch that are checked before the event loop serves other requests."""


class CreationContext(msgspec.Struct, frozen=True):
    """The caller, time and settings that all jobs of one request share."""

    caller: Caller
    now_ms: int
    traceparent: str | None
    settings: TenantSettings
    maker_of: str | None
    """Built-in pool that the calling service makes jobs for."""


class Draft(msgspec.Struct, frozen=True):
    """A valid job that is not stored yet."""

    new: NewJob
    warnings: tuple[str, ...]
    payload: Any
    has_default_spread: bool


class NewDefinition(msgspec.Struct, frozen=True):
    """A valid new definition of an existing job."""

    spec: JobSpec
    """The definition without its payload."""
    payload: bytes | None
    warnings: tuple[str, ...]


class Drafter:
    """Validates specs, and turns them into drafts of new jobs or into definitions of existing ones."""

    def __init__(
        self,
        *,
        catalogue: Catalogue,
        quotas: Quotas,
        payloads: Payloads,
        presenter: Presenter,
        new_id: Callable[[], JobId],
    ) -> None:
        self._catalogue = catalogue
        self._quotas = quotas
        self._payloads = payloads
        self._presenter = presenter
        self._new_id = new_id

    async def draft_each(
        self, context: CreationContext, specs: Sequence[JobSpec | NoondayError]
    ) -> list[Draft | NoondayError]:
        """Return a draft or an error for each spec, in order."""
        drafts = []
        for number, spec in enumerate(specs, 1):
            drafts.append(await self.draft(context, spec))
            if number % DRAFTS_A_TURN == 0:
                await asyncio.sleep(0)
        return drafts

    async def draft(self, context: CreationContext, spec: JobSpec | NoondayError) -> Draft | NoondayError:
        """Return the draft of a job, or the error of an invalid spec. Raises Unavailable."""
        if isinstance(spec, NoondayError):
            return spec
        return await self._draft_or_error(context, spec, self._new_id(), context.now_ms)

    async def draft_children(
        self, context: CreationContext, children: Sequence[ChildJob]
    ) -> list[Draft | NoondayError]:
        """Return a draft or an error for each child job, in order. A `runAt` may have passed since the job was enqueued."""
        drafts = []
        for number, child in enumerate(children, 1):
            drafts.append(await self._draft_or_error(context, child.spec, child.job_id, child.enqueued_ms))
            if number % DRAFTS_A_TURN == 0:
                await asyncio.sleep(0)
        return drafts

    async def _draft_or_error(
        self, context: CreationContext, spec: JobSpec, job_id: JobId, checked_ms: int
    ) -> Draft | NoondayError:
        try:
            return await self._draft(context, spec, job_id, checked_ms)
        except Unavailable:
            raise  # the store failed; the job has no flaw
        except NoondayError as error:
            return error

    async def _draft(self, context: CreationContext, spec: JobSpec, job_id: JobId, checked_ms: int) -> Draft:
        tenant, now_ms, settings = context.caller.tenant, context.now_ms, context.settings
        check(spec, checked_ms, context.maker_of)
        plain = self._payloads.encode(spec.payload, tenant, settings.max_payload_bytes)
        warnings = () if self._catalogue.is_simple(spec) else await self._catalogue.check(spec)
        with_spread = with_default_spread(spec, settings.default_spread_sec)
        job = Job(
            id=job_id,
            tenant=tenant,
            revision=1,
            state=JobState.ACTIVE,
            spec=_without_payload(with_spread),
            anchor_ms=anchor_of(spec, now_ms),
            payload=self._payloads.seal(plain, tenant, job_id),
            created_ms=now_ms,
            updated_ms=now_ms,
            trace=context.traceparent,
        )
        return Draft(NewJob(job, edits.first_fire(job, now_ms)), warnings, spec.payload, with_spread is not spec)

    async def define(
        self,
        caller: Caller,
        job_id: str,
        spec: JobSpec,
        now_ms: int,
        maker_of: str | None,
        present: JobSpec | None = None,
    ) -> NewDefinition:
        """Return the new definition of an existing job. The `runAt` of its `present` one may be in the past.

        Raises InvalidInput and PayloadTooLarge.
        """
        is_same_time = present is not None and spec.run_at == present.run_at
        check(msgspec.structs.replace(spec, run_at=None) if is_same_time else spec, now_ms, maker_of)
        settings = await self._quotas.settings(caller.tenant)
        plain = self._payloads.encode(spec.payload, caller.tenant, settings.max_payload_bytes)
        warnings = await self._catalogue.check(spec)
        payload = self._payloads.seal(plain, caller.tenant, job_id)
        return NewDefinition(
            _without_payload(with_default_spread(spec, settings.default_spread_sec)), payload, warnings
        )

    async def payload_of_run(self, caller: Caller, job: Job, payload: Any) -> bytes:
        """Return the ciphertext of a payload for one run of a job. Raises InvalidInput and PayloadTooLarge."""
        await self._catalogue.check(msgspec.structs.replace(job.spec, payload=payload))
        settings = await self._quotas.settings(caller.tenant)
        plain = self._payloads.encode(payload, job.tenant, settings.max_payload_bytes) or b"null"
        sealed = self._payloads.seal(plain, job.tenant, job.id)
        assert sealed is not None
        return sealed

    def for_existing(self, present: Job, new: Job, *, has_default_spread: bool) -> Job:
        """Return a new job as an update of the job that has its unique key.

        The payload was encrypted for the id of the new job, so it is encrypted again, unless it is unchanged.
        """
        plain = self._presenter.open(new.payload, new.tenant, new.id)
        if has_default_spread:
            new = _keeping_spread(present, new)
        if plain == self._presenter.open(present.payload, present.tenant, present.id):
            return msgspec.structs.replace(new, payload=present.payload)
        encoded = self._payloads.encode(plain, present.tenant)
        return msgspec.structs.replace(new, payload=self._payloads.seal(encoded, present.tenant, present.id))


def valid_drafts(drafts: Sequence[Draft | NoondayError]) -> list[Draft]:
    return [draft for draft in drafts if isinstance(draft, Draft)]


def admitted(drafts: Sequence[Draft | NoondayError], room: QuotaReservation) -> Sequence[Draft | NoondayError]:
    """Replace the drafts that exceed the quota by its refusal."""
    if room.why is None:
        return drafts
    numbers = iter(range(len(drafts)))
    return [room.why if isinstance(each, Draft) and next(numbers) in room.refused else each for each in drafts]


def all_flaws(drafts: Sequence[Draft | NoondayError]) -> InvalidInput:
    """Return one error with the flaws of all invalid jobs of a batch."""
    flaws, left_out = [], 0
    for at, draft in enumerate(drafts):
        if isinstance(draft, InvalidInput):
            flaws += [
                Flaw(f"/jobs/{at}{flaw.pointer}", flaw.detail, flaw.value, flaw.allowed, flaw.nearest)
                for flaw in draft.flaws
            ]
            left_out += draft.context.get("leftOut", 0)
        elif isinstance(draft, NoondayError):
            flaws.append(Flaw(f"/jobs/{at}", draft.detail))
    more = {"leftOut": left_out} if left_out else {}
    detail = f"{len(flaws) + left_out} values are not valid; nothing was stored"
    return InvalidInput(detail, flaws, most_flaws=FLAWS_OF_BATCH, **more)


def _keeping_spread(present: Job, new: Job) -> Job:
    """Keep the spread of a job that is unchanged but for the tenant's default spread, so that its times do not move."""
    same = msgspec.structs.replace(new.spec, spread_sec=present.spec.spread_sec)
    return msgspec.structs.replace(new, spec=same) if same == present.spec else new


def _without_payload(spec: JobSpec) -> JobSpec:
    return spec if spec.payload is None else msgspec.structs.replace(spec, payload=None)
