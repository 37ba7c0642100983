"""/v1/jobs/batch: many jobs in one transaction, each judged by itself."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from noonday.api.call import Call
from noonday.api.decoding import BodyDecoder
from noonday.api.errors import MalformedBody, problem_of, public_error
from noonday.api.query import Query
from noonday.api.routing import Route, encode
from noonday.model.errors import FLAWS_OF_BATCH, InvalidInput, NoondayError, PayloadTooLarge
from noonday.model.job import JobSpec
from noonday.model.view import JobView

PATH = "/v1/jobs/batch"
DECODED_A_TURN = 100
"""How many jobs are read before the event loop serves others."""


class JobBatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Up to 10,000 jobs."""

    # Raw, so that one element that cannot be read spoils nobody else's.
    jobs: list[msgspec.Raw]


class BatchQuery(Query, frozen=True):
    atomic: bool = False


class BatchView(msgspec.Struct, frozen=True):
    """The jobs created, and problem details for those that were not, in the order of the request."""

    jobs: list[Any]


async def create_jobs(call: Call, query: BatchQuery, body: JobBatch) -> list[JobView | NoondayError]:
    """Create up to 10,000 jobs at once.

    The valid ones are stored in one transaction, and the others answered as problems in their places; so are those that
    the tenant's `maxJobs` has no room for. With `atomic=true` all are stored or none: 422 names everything that is
    wrong, 429 says that there is no room for all.
    """
    _require_count_within(call.engine.limits.batch_jobs, len(body.jobs))
    specs = await _decoded(body.jobs)
    return await call.desk.create_many(
        call.caller, specs, atomic=query.atomic, idem=call.idem, traceparent=call.traceparent
    )


def encode_batch(results: Sequence[JobView | NoondayError]) -> bytes:
    left, elements = FLAWS_OF_BATCH, list[Any]()
    for place, result in enumerate(results):
        if isinstance(result, NoondayError):
            problem = problem_of(public_error(result, PATH), f"{PATH}#/jobs/{place}", left)
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
        detail = f"a batch has at most {limit} jobs, this one has {count}; send several"
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
