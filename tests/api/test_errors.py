import inspect
import logging
from collections.abc import Iterator

import pytest
import structlog
from structlog.testing import capture_logs
from structlog.types import EventDict

from noonday.api.errors import PROBLEM_TYPES, problem_of, reply_of, truncated
from noonday.model import errors
from noonday.model.errors import Flaw, InvalidInput, NoondayError, NotFound, StoreFailed, StoreUnavailable
from tests.api.asgi import Client
from tests.api.engine import Backstage

JOB = {"type": "ONE_TIME", "target": {"pool": "demo", "handler": "demo.echo"}}
SOME_ID = "0190c1e2-0000-7000-8000-000000000000"
INTERNAL_ERRORS = frozenset(
    {
        errors.AlreadyRunning,
        errors.EngineStopped,
        errors.Unavailable,
        errors.IndexUnavailable,
        errors.TokensUnavailable,
        errors.LeasesUnavailable,
        errors.BadKey,
        errors.BadSettings,
        errors.DoNotRetry,
        errors.ExecutionFailed,
        errors.MissingExtra,
    }
)
"""Errors that no request can cause. The response to one of them is `internal-error`."""


def test_every_model_error_has_a_problem_type_or_is_internal():
    declared = {
        cls
        for _, cls in inspect.getmembers(errors, inspect.isclass)
        if issubclass(cls, NoondayError) and cls is not NoondayError and "code" in vars(cls)
    }
    assert declared == (declared & PROBLEM_TYPES.keys()) | INTERNAL_ERRORS
    assert not INTERNAL_ERRORS & PROBLEM_TYPES.keys()


def test_error_without_own_code_uses_the_problem_type_of_its_base_class():
    problem = problem_of(StoreFailed("XX000"), "/v1/jobs")
    assert problem["type"] == "https://noonday.dev/problems/store-unavailable"
    assert problem["status"] == 503


def test_problem_has_rfc_9457_members_and_error_context():
    problem = problem_of(NotFound("there is no job 7", jobId="7"), "/v1/jobs/7")
    assert problem == {
        "type": "https://noonday.dev/problems/not-found",
        "title": "Not found",
        "status": 404,
        "detail": "there is no job 7",
        "instance": "/v1/jobs/7",
        "jobId": "7",
    }


def test_error_context_cannot_override_standard_members():
    assert problem_of(NotFound("x", status="gone"), "/")["status"] == 404


def test_problem_lists_every_flaw_with_pointer_value_and_remedy():
    flaws = [Flaw("/a", "bad", 1, allowed=[2, 3]), Flaw("/b", "bad", "rde", nearest="red")]
    assert [
        {"pointer": flaw.pointer, "value": flaw.value, "allowed": flaw.allowed, "nearest": flaw.nearest}
        for flaw in problem_of(InvalidInput("two", flaws), "/")["errors"]
    ] == [
        {"pointer": "/a", "value": 1, "allowed": [2, 3], "nearest": None},
        {"pointer": "/b", "value": "rde", "allowed": None, "nearest": "red"},
    ]


@pytest.mark.parametrize("value", ["x" * 10_000, [1] * 10_000, "\ud800", {"deep": "\udfff"}])
def test_large_or_non_unicode_value_is_truncated(value):
    reply = reply_of(InvalidInput.of("/x", "bad", value), "/")
    assert len(reply.body) < 1500


def test_small_value_is_not_truncated():
    assert truncated({"a": [1, None]}) == {"a": [1, None]}


async def test_unavailable_store_returns_503_with_retry_after(client: Client, backstage: Backstage):
    backstage.tokens.trouble = StoreUnavailable("the disk is full: make room and retry")
    response = await client.post("/v1/jobs", JOB)
    assert (response.status, response.code) == (503, "store-unavailable")
    assert response.headers["retry-after"] == "5"
    assert response.json["detail"] == "the disk is full: make room and retry"


@pytest.fixture
def logs() -> Iterator[list[EventDict]]:
    """Captured log entries, although tests disable logging."""
    previous = structlog.get_config()["wrapper_class"]
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    with capture_logs() as logs:
        yield logs
    structlog.configure(wrapper_class=previous)


async def test_unexpected_error_is_logged_and_not_disclosed(
    client: Client, backstage: Backstage, logs: list[EventDict]
):
    backstage.tokens.trouble = ZeroDivisionError("secret internals")
    response = await client.get(f"/v1/jobs/{SOME_ID}")
    assert (response.status, response.code) == (500, "internal-error")
    assert b"secret" not in response.body
    assert b"Zero" not in response.body
    (entry,) = logs
    assert entry["incident"] == response.json["incident"]
    assert entry["exc_info"] is backstage.tokens.trouble


async def test_internal_noonday_error_returns_internal_error(client: Client, backstage: Backstage):
    backstage.tokens.trouble = errors.BadKey("key 7 is missing")
    response = await client.get(f"/v1/jobs/{SOME_ID}")
    assert (response.status, response.code) == (500, "internal-error")


async def test_instance_is_a_uri_for_a_path_with_special_characters(client: Client):
    response = await client.get('/v1/pools/"<ü>\ud800')
    assert response.json["instance"] == "/v1/pools/%22%3C%C3%BC%3E%3F"
