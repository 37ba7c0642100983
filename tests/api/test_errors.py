import inspect
import logging
from collections.abc import Iterator

import pytest
import structlog
from structlog.testing import capture_logs
from structlog.types import EventDict

from noonday.api.errors import ANSWERS, OURS, problem_of, reply_of, shown
from noonday.model import errors
from noonday.model.errors import Flaw, InvalidInput, NoondayError, NotFound, StoreFailed, StoreUnavailable
from tests.api.asgi import Client
from tests.api.engine import Backstage

JOB = {"type": "ONE_TIME", "target": {"pool": "demo", "handler": "demo.echo"}}
SOME_ID = "0190c1e2-0000-7000-8000-000000000000"


def test_every_error_of_the_model_has_an_answer_or_is_ours():
    declared = {
        cls
        for _, cls in inspect.getmembers(errors, inspect.isclass)
        if issubclass(cls, NoondayError) and cls is not NoondayError and "code" in vars(cls)
    }
    assert declared == (declared & ANSWERS.keys()) | OURS
    assert not OURS & ANSWERS.keys()


def test_an_error_without_a_code_of_its_own_is_answered_as_what_it_is_a_kind_of():
    problem = problem_of(StoreFailed("XX000"), "/v1/jobs")
    assert problem["type"] == "https://noonday.dev/problems/store-unavailable"
    assert problem["status"] == 503


def test_a_problem_has_the_members_of_rfc_9457_and_the_context_of_the_error():
    problem = problem_of(NotFound("there is no job 7", jobId="7"), "/v1/jobs/7")
    assert problem == {
        "type": "https://noonday.dev/problems/not-found",
        "title": "There is no such thing",
        "status": 404,
        "detail": "there is no job 7",
        "instance": "/v1/jobs/7",
        "jobId": "7",
    }


def test_context_cannot_hide_a_standard_member():
    assert problem_of(NotFound("x", status="gone"), "/")["status"] == 404


def test_a_problem_lists_every_flaw_with_its_pointer_value_and_remedy():
    flaws = [Flaw("/a", "bad", 1, allowed=[2, 3]), Flaw("/b", "bad", "rde", nearest="red")]
    assert [
        {"pointer": flaw.pointer, "value": flaw.value, "allowed": flaw.allowed, "nearest": flaw.nearest}
        for flaw in problem_of(InvalidInput("two", flaws), "/")["errors"]
    ] == [
        {"pointer": "/a", "value": 1, "allowed": [2, 3], "nearest": None},
        {"pointer": "/b", "value": "rde", "allowed": None, "nearest": "red"},
    ]


@pytest.mark.parametrize("value", ["x" * 10_000, [1] * 10_000, "\ud800", {"deep": "\udfff"}])
def test_a_value_that_is_large_or_not_unicode_is_shown_in_part(value):
    reply = reply_of(InvalidInput.of("/x", "bad", value), "/")
    assert len(reply.body) < 1500


def test_a_small_value_is_shown_whole():
    assert shown({"a": [1, None]}) == {"a": [1, None]}


async def test_a_store_that_is_away_is_503_with_a_time_to_come_back(client: Client, backstage: Backstage):
    backstage.tokens.trouble = StoreUnavailable("the disk is full: make room and retry")
    response = await client.post("/v1/jobs", JOB)
    assert (response.status, response.code) == (503, "store-unavailable")
    assert response.headers["retry-after"] == "5"
    assert response.json["detail"] == "the disk is full: make room and retry"


@pytest.fixture
def logs() -> Iterator[list[EventDict]]:
    """What is logged, however silent tests are otherwise."""
    usual = structlog.get_config()["wrapper_class"]
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    with capture_logs() as logs:
        yield logs
    structlog.configure(wrapper_class=usual)


async def test_an_unexpected_error_is_logged_and_tells_nothing(
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


async def test_an_error_of_ours_that_no_request_can_cause_is_an_internal_one(client: Client, backstage: Backstage):
    backstage.tokens.trouble = errors.BadKey("key 7 is missing")
    response = await client.get(f"/v1/jobs/{SOME_ID}")
    assert (response.status, response.code) == (500, "internal-error")


async def test_the_instance_is_a_uri_even_if_the_path_is_odd(client: Client):
    response = await client.get('/v1/pools/"<ü>\ud800')
    assert response.json["instance"] == "/v1/pools/%22%3C%C3%BC%3E%3F"
