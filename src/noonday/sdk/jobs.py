"""Client of /v1/jobs and /v1/schedules: jobs, their occurrences, and previews of schedules."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

import msgspec

from noonday.model.errors import InvalidInput, NoondayError
from noonday.model.filters import MoveRequest, PauseRequest, PreviewRequest, SkipRequest
from noonday.model.ids import JobId
from noonday.model.job import JobSpec, JobType
from noonday.model.view import BackfillView, ExecutionView, JobPage, JobView, OccurrencePage, Preview
from noonday.sdk.fields import either
from noonday.sdk.methods import ApiMethods, Listing
from noonday.sdk.payload import to_builtins
from noonday.sdk.problems import Problem, is_problem, problem_of
from noonday.sdk.spec import patch_of, spec_of
from noonday.sdk.transport import decoded, path_of

BATCH_JOBS = 10_000
BATCH_BYTES = 32 * 1024 * 1024


class JobMethods(ApiMethods):
    """Methods of `Client` on jobs and schedules."""

    async def create(
        self, spec: JobSpec | None = None, /, *, idempotency_key: str | None = None, **fields: Any
    ) -> JobView:
        """Create a job from a JobSpec, or from its fields by name: `create(type="CRON", target=..., schedule=...)`."""
        job = either(spec, fields, spec_of)
        return await self._http.change(JobView, "POST", "/v1/jobs", job, key=idempotency_key)

    async def create_many(self, specs: Iterable[JobSpec], *, atomic: bool = False) -> list[JobView | Problem]:
        """Create many jobs. Returns a job or a problem for each, in the same order.

        The client sends several batches if one request would be too large; each batch is one transaction. If a later batch
        fails, `answered` in the error's context has the results of the batches before it. With `atomic`, all jobs are stored or
        none, and the error has every flaw; this needs a single batch (at most 10,000 jobs).
        """
        if atomic:
            specs = list(specs)
            if len(specs) > BATCH_JOBS:
                raise InvalidInput(f"{len(specs)} jobs cannot be created atomically; send at most {BATCH_JOBS}")
        answered: list[JobView | Problem] = []
        for batch in _batches(specs, None if atomic else BATCH_BYTES):
            try:
                answered += await self._create_batch(batch, atomic)
            except NoondayError as bad:
                bad.context["answered"] = answered
                raise
        return answered

    async def create_ids(self, specs: Iterable[JobSpec]) -> list[JobId]:
        """Create many jobs, and return their ids in the same order.

        Each batch (at most 10,000 jobs and 32 MB) creates all of its jobs or none, and raises an error with every flaw. If a
        later batch fails, `created` in the error's context has the ids of the batches before it.
        """
        created: list[JobId] = []
        for batch in _batches(specs, BATCH_BYTES):
            try:
                answered = await self._create_batch(batch, atomic=True)
            except NoondayError as bad:
                bad.context["created"] = created
                raise
            created += [JobId(job.job_id) for job in answered if isinstance(job, JobView)]
        return created

    async def get_job(self, job_id: str, *, executions: int | None = None) -> JobView:
        """Return a job with its latest executions (`executions` is their number). Raises NotFound."""
        return await self._http.get(JobView, path_of("jobs", job_id), {"executions": executions})

    def list_jobs(
        self,
        *,
        state: str | None = None,
        pool: str | None = None,
        handler: str | None = None,
        type: JobType | str | None = None,
        tag: str | None = None,
        name: str | None = None,
        unique_key: str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
        summary: bool = False,
    ) -> Listing[JobPage, JobView]:
        """List jobs that match all conditions. `limit` is the page size. A `summary` omits payloads."""
        query = {
            "view": "summary" if summary else None,
            "state": state,
            "pool": pool,
            "handler": handler,
            "type": type,
            "tag": tag,
            "name": name,
            "uniqueKey": unique_key,
            "limit": limit,
        }
        return self._list(JobPage, lambda page: page.jobs, "/v1/jobs", query, cursor)

    async def replace(self, job_id: str, spec: JobSpec, *, if_version: int | None = None) -> JobView:
        """Replace the whole definition of a job. Raises VersionMismatch if its version is not `if_version`."""
        headers = {} if if_version is None else {"If-Match": f'"{if_version}"'}
        return await self._http.change(JobView, "PUT", path_of("jobs", job_id), spec, headers=headers)

    async def change(
        self, job_id: str, patch: Mapping[str, Any] | None = None, /, *, if_version: int | None = None, **fields: Any
    ) -> JobView:
        """Change some fields of a job: `change(job_id, schedule="0 4 * * *", catch_up={"policy": "ALL"})`.

        Takes a JSON merge patch (RFC 7396), or fields of `JobSpec` by their Python names. None removes a field, and objects, also
        those in `payload`, are merged. Raises VersionMismatch if the version of the job is not `if_version`.
        """
        if patch is not None and fields:
            raise InvalidInput("pass either a merge patch or fields, not both")
        headers = {} if if_version is None else {"If-Match": f'"{if_version}"'}
        body = patch_of(fields) if patch is None else patch
        return await self._http.change(JobView, "PATCH", path_of("jobs", job_id), body, headers=headers)

    async def pause(self, job_id: str, *, until: datetime | None = None) -> JobView:
        """Pause a job: it does not fire until it is resumed, at `until` if that is given."""
        path = path_of("jobs", job_id, "pause")
        return await self._http.change(JobView, "POST", path, None if until is None else PauseRequest(until=until))

    async def resume(self, job_id: str) -> JobView:
        return await self._http.change(JobView, "POST", path_of("jobs", job_id, "resume"))

    async def delete(self, job_id: str) -> JobView:
        return await self._http.change(JobView, "DELETE", path_of("jobs", job_id))

    async def trigger(
        self, job_id: str, *, payload: Any = msgspec.UNSET, force: bool = False, idempotency_key: str | None = None
    ) -> ExecutionView:
        """Run a job now, in addition to its schedule, with its own payload or with the given one.

        Raises Conflict if an execution is open and `overlap` is SKIP, unless `force` is true.
        """
        body: dict[str, Any] = {"force": True} if force else {}
        if payload is not msgspec.UNSET:
            body["payload"] = to_builtins(payload, "/payload")
        path = path_of("jobs", job_id, "trigger")
        return await self._http.change(ExecutionView, "POST", path, body or None, key=idempotency_key)

    async def skip(
        self, job_id: str, *, at: datetime | None = None, next: int | None = None, reason: str | None = None
    ) -> JobView:
        """Skip the occurrence at an instant, or the next ones: they will not fire. `skips` of the job shows them.

        Raises Conflict if the occurrence is decided or dispatched already.
        """
        return await self._http.change(
            JobView, "POST", path_of("jobs", job_id, "skip"), SkipRequest(at=at, next=next, reason=reason)
        )

    async def undo_skip(self, job_id: str, *, at: datetime | None = None) -> JobView:
        """Undo the skip of the occurrence at an instant, or all skips of a job, before their time."""
        path = path_of("jobs", job_id, "skip")
        if at is not None:
            path += "?" + urlencode({"at": at.isoformat()})
        return await self._http.change(JobView, "DELETE", path)

    async def move(self, job_id: str, at: datetime, to: datetime, *, reason: str | None = None) -> JobView:
        """Let the occurrence at an instant fire at another one. `moves` of the job shows it.

        A moved occurrence is named by its new time. Moving it back to its former time undoes the move. Raises Conflict if the
        occurrence is decided or dispatched already, or if the job has an occurrence at the new time.
        """
        path = path_of("jobs", job_id, "move")
        return await self._http.change(JobView, "POST", path, MoveRequest(at=at, to=to, reason=reason))

    async def backfill(
        self, job_id: str, from_: datetime, to: datetime, *, backfill_id: str | None = None, preview: bool = False
    ) -> BackfillView:
        """Run the occurrences of a past range, in pages. Repeat until `created` is 0.

        A repeated backfill with the same id creates only missing executions. The id defaults to the range.
        """
        body: dict[str, Any] = {"from": from_, "to": to, "preview": preview}
        if backfill_id is not None:
            body["backfillId"] = backfill_id
        return await self._http.change(BackfillView, "POST", path_of("jobs", job_id, "backfill"), body)

    async def occurrences(
        self, job_id: str, from_: datetime | None = None, to: datetime | None = None, *, limit: int | None = None
    ) -> OccurrencePage:
        """Return a job's occurrences: decisions with reasons, and planned times."""
        query = {"from": from_, "to": to, "limit": limit}
        return await self._http.get(OccurrencePage, path_of("jobs", job_id, "occurrences"), query)

    async def preview(self, request: PreviewRequest | None = None, /, **fields: Any) -> Preview:
        """Preview the next fire times of a schedule: `preview(schedule="0 3 * * *", timezone="Europe/Oslo")`."""
        body = either(request, fields, PreviewRequest)
        return await self._http.ask(Preview, "POST", "/v1/schedules/preview", body)

    async def _create_batch(self, batch: list[bytes], atomic: bool) -> list[JobView | Problem]:
        path = "/v1/jobs/batch" + ("?atomic=true" if atomic else "")
        response = await self._http.change(
            _BatchResponse, "POST", path, msgspec.Raw(b'{"jobs":[' + b",".join(batch) + b"]}")
        )
        return [_job_or_problem(raw) for raw in response.jobs]


class _BatchResponse(msgspec.Struct):
    jobs: list[msgspec.Raw]


def _batches(specs: Iterable[JobSpec], most_bytes: int | None) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    size = 0
    for spec in specs:
        encoded = msgspec.json.encode(spec)
        size += len(encoded) + 1
        if len(batch) == BATCH_JOBS or (batch and most_bytes and size > most_bytes):
            yield batch
            batch, size = [], len(encoded) + 1
        batch.append(encoded)
    if batch:
        yield batch


def _job_or_problem(raw: msgspec.Raw) -> JobView | Problem:
    members = decoded(dict[str, Any], raw, "/v1/jobs/batch")
    return problem_of(members) if is_problem(members) else decoded(JobView, raw, "/v1/jobs/batch")
