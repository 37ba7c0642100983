"""Changes of a job's definition: merge patches, and replacements by what a GET returned."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec

from noonday.intake.idempotency import AlreadyAnswered, Idempotency
from noonday.intake.job_editor import JobEditor
from noonday.intake.job_service import JobService
from noonday.intake.lookup import get_job_row
from noonday.intake.presenters import Presenter
from noonday.intake.receipts import Receipts
from noonday.model.caller import Caller
from noonday.model.decoding import BodyDecoder, read_json
from noonday.model.errors import BadKey, Conflict, Flaw, InvalidInput, StoreUnavailable, VersionMismatch
from noonday.model.job import Job, JobSpec
from noonday.model.merge_patch import merged
from noonday.model.view import INSTEAD_OF_READ_ONLY, READ_ONLY_FIELDS, JobView
from noonday.ports.queries import QueryStore

TRIES = 5
"""Maximum number of attempts to apply a patch while other requests change the job."""
_read_spec = BodyDecoder(JobSpec)


class JobChanger:
    """Reads what a request says about the definition of a job, and applies it through the job service."""

    def __init__(
        self,
        *,
        jobs: JobService,
        editor: JobEditor,
        query_store: QueryStore,
        receipts: Receipts,
        presenter: Presenter,
    ) -> None:
        self._jobs = jobs
        self._editor = editor
        self._query_store = query_store
        self._receipts = receipts
        self._presenter = presenter

    async def patch(
        self,
        caller: Caller,
        job_id: str,
        patch: Mapping[str, Any],
        *,
        if_version: int | None = None,
        idem: Idempotency | None = None,
    ) -> JobView:
        """Change the fields of a job that a merge patch names. A one-shot keeps its time unless the patch changes it.

        Raises NotFound, InvalidInput, Conflict, and VersionMismatch if the job is not at version `if_version`.
        """
        async with self._answered_once(caller, job_id, idem):
            _refuse_read_only(patch)
            for _ in range(TRIES):
                present = (await get_job_row(self._query_store, caller, job_id)).job
                if if_version is not None and present.revision < if_version:
                    raise VersionMismatch(
                        f"the job is at version {present.revision}, not {if_version}", version=present.revision
                    )
                spec = _read_spec.decode(msgspec.json.encode(merged(self._members_of(present), patch)))
                version = present.revision if if_version is None else if_version
                try:
                    return await self._jobs.replace(
                        caller, job_id, spec, if_version=version, idem=idem, present=present.spec, keeps_time=True
                    )
                except VersionMismatch:
                    if if_version is not None:
                        raise
                # Another request has changed the job: apply the patch to the new version.
        raise StoreUnavailable(f"gave up on job {job_id} after {TRIES} conflicting changes; retry")

    async def replace(
        self,
        caller: Caller,
        job_id: str,
        body: bytes | msgspec.Raw,
        *,
        if_version: int | None = None,
        idem: Idempotency | None = None,
    ) -> JobView:
        """Give a job a new definition. The body may also have the read-only fields of a `JobView`, which change nothing.

        Raises InvalidInput if it is the view of another job. Any other read-only value that differs from the job is named in a
        warning.
        """
        async with self._answered_once(caller, job_id, idem):
            spec, read_only = _split(body)
            present = None
            if read_only or spec.run_at is not None:
                present = (await get_job_row(self._query_store, caller, job_id)).job.spec
            return await self._jobs.replace(
                caller, job_id, spec, if_version=if_version, idem=idem, present=present, read_only=read_only
            )

    @asynccontextmanager
    async def _answered_once(self, caller: Caller, job_id: str, idem: Idempotency | None) -> AsyncIterator[None]:
        """Replay the stored response of an idempotency key before refusing a request, once workers know of the change."""
        try:
            async with self._receipts.unless_answered(caller, idem):
                yield
        except AlreadyAnswered:
            await self._editor.fence_again(caller, job_id)
            raise

    def _members_of(self, present: Job) -> Any:
        try:
            payload = self._presenter.decrypted(present.payload, present.tenant, present.id)
        except (BadKey, RecursionError) as error:
            raise Conflict(
                f"the payload of job {present.id} cannot be read, so that it cannot be kept: replace the job with PUT"
            ) from error
        return msgspec.json.decode(msgspec.json.encode(msgspec.structs.replace(present.spec, payload=payload)))


def _split(body: bytes | msgspec.Raw) -> tuple[JobSpec, dict[str, Any]]:
    """Return the definition in a body, and its read-only members. Raises MalformedBody and InvalidInput."""
    with suppress(InvalidInput):
        spec: JobSpec = _read_spec.decode(body)
        return spec, {}
    members = read_json(body)
    read_only = {}
    if isinstance(members, dict):
        read_only = {name: members.pop(name) for name in READ_ONLY_FIELDS & members.keys()}
    spec = _read_spec.decode(msgspec.json.encode(members))
    return spec, read_only


def _refuse_read_only(patch: Mapping[str, Any]) -> None:
    """Raise InvalidInput if a patch names read-only fields: unlike a replacement, it names only what it wants to change."""
    flaws = [
        Flaw(
            f"/{name}",
            f"{name} is read-only" + (f": {INSTEAD_OF_READ_ONLY[name]}" if name in INSTEAD_OF_READ_ONLY else ""),
            patch[name],
        )
        for name in sorted(READ_ONLY_FIELDS & patch.keys())
    ]
    if flaws:
        raise InvalidInput(flaws[0].detail if len(flaws) == 1 else f"{len(flaws)} values are not valid", flaws)
