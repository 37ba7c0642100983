"""/v1/jobs/batch: create many jobs in one transaction."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from noonday.api.context import RequestContext
from noonday.api.errors import problem_of, public_error
from noonday.api.query import Query
from noonday.api.routing import Route, encode
from noonday.model.decoding import BodyDecoder
from noonday.model.errors import FLAWS_OF_BATCH, InvalidInput, MalformedBody, NoondayError, PayloadTooLarge
from noonday.model.job import JobSpec
from noonday.model.view import JobView

PATH = "/v1/jobs/batch"
DECODED_A_TURN = 100
"""Number of jobs to decode before yielding to the event loop."""


class JobBatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Up to 10,000 jobs."""

    # Raw, so that one malformed element does not invalidate the others.
    jobs: list[msgspec.Raw]


class BatchQuery(Query, frozen=True):
    atomic: bool = False


class BatchView(msgspec.Struct, frozen=True):
    """Created jobs, or problem details of rejected ones, in the order of the request."""

    jobs: list[Any]


async def create_jobs(context: RequestContext, query: BatchQuery, body: JobBatch) -> list[JobView | NoondayError]:
    """Create up to 10,000 jobs in one transaction.

    Valid jobs are stored. Invalid jobs, and jobs beyond the tenant's `maxJobs`, have problem details at their position in the
    response. With `atomic=true`, all jobs are stored or none: 422 lists every flaw, and 429 means that `maxJobs` is too low for
    the batch.
    """
    _require_count_within(context.services.limits.batch_jobs, len(body.jobs))
    specs = await _decoded(body.jobs)
    return await context.intake.jobs.create_many(
        context.caller, specs, atomic=query.atomic, idem=context.idem, traceparent=context.traceparent
    )


def encode_batch(results: Sequence[JobView | NoondayError]) -> bytes:
    left, elements = FLAWS_OF_BATCH, list[Any]()
    for index, result in enumerate(results):
        if isinstance(result, NoondayError):
            problem = problem_of(public_error(result, PATH), f"{PATH}#/jobs/{index}", left)
            left -= len(problem.get("errors", ()))
            elements.append(problem)
        else:
            elements.append(result)
    return encode({"jobs": elements})


ROUTES = (
    Route(
        "POST",
        PATH,
        create_jobs,
        scope="write",
        encode=encode_batch,
        returns=BatchView,
        is_batch=True,
        creates_jobs=True,
    ),
)

_SPEC = BodyDecoder(JobSpec)


def _require_count_within(limit: int, count: int) -> None:
    if count > limit:
        detail = f"the batch has {count} jobs, the limit is {limit}; send several batches"
        raise PayloadTooLarge(detail, limitJobs=limit, jobs=count)


async def _decoded(raws: Sequence[msgspec.Raw]) -> list[JobSpec | NoondayError]:
    specs = []
    for number, raw in enumerate(raws, 1):
        specs.append(_decode(raw))
        if number % DECODED_A_TURN == 0:
            await asyncio.sleep(0)
    return specs


def _decode(raw: msgspec.Raw) -> JobSpec | NoondayError:
    try:
        spec: JobSpec = _SPEC.decode(raw)
    except (InvalidInput, MalformedBody) as error:
        return error
    return spec
