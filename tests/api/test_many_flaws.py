"""Requests with very many flaws: their cost, and the size of the answers."""

from typing import Any

import pytest

from noonday.api.operations import MOST_SUGGESTIONS
from noonday.model.errors import MOST_COMPARED, few_suggestions, nearest
from noonday.model.ids import WorkerId
from noonday.model.message import HandlerInfo, Hello
from noonday.model.recording import Checkpoint
from tests.api.asgi import Client
from tests.api.engine import NOON_MS, Backstage

NUMBERS = {"type": "array", "items": {"type": "integer"}}


def cron_job(zone: str) -> dict[str, Any]:
    target = {"pool": "demo", "handler": "h"}
    return {"type": "CRON", "schedule": "0 0 * * *", "timezone": zone, "target": target}


def job_with(payload: Any) -> dict[str, Any]:
    return {"type": "ONE_TIME", "target": {"pool": "demo", "handler": "sum"}, "payload": payload}


@pytest.fixture
async def strict(backstage: Backstage, client: Client) -> Client:
    """An engine with a handler that takes a list of numbers."""
    hello = Hello(WorkerId("w"), NOON_MS, "here", 1, {"demo": 1}, (HandlerInfo("demo", "sum", NUMBERS),))
    await backstage.store.executions.settle(
        [], [hello], was=None, now=Checkpoint(0, "generation", 1, 0), now_ms=NOON_MS
    )
    return client


def flaws_in(answer: list[dict[str, Any]]) -> int:
    return sum(len(each.get("errors", ())) for each in answer)


async def test_only_first_unknown_zones_have_a_nearest_name(client: Client) -> None:
    jobs = [cron_job(f"Europe/Berlim{number}") for number in range(200)]
    answer = (await client.post("/v1/jobs/batch", {"jobs": jobs})).json["jobs"]
    suggested = [error["nearest"] for each in answer for error in each.get("errors", ()) if "nearest" in error]
    assert suggested == ["Europe/Berlin"] * MOST_SUGGESTIONS


async def test_job_lists_20_flaws_and_counts_the_rest(strict: Client) -> None:
    problem = (await strict.post("/v1/jobs", job_with(["no"] * 1000))).json
    assert (len(problem["errors"]), problem["leftOut"]) == (20, 980)


async def test_job_with_few_flaws_lists_all(strict: Client) -> None:
    problem = (await strict.post("/v1/jobs", job_with(["no"] * 20))).json
    assert len(problem["errors"]) == 20
    assert "leftOut" not in problem


async def test_batch_lists_100_flaws_and_counts_the_rest_per_job(strict: Client) -> None:
    jobs = [job_with(["no"] * 50) for _ in range(10)]
    answer = (await strict.post("/v1/jobs/batch", {"jobs": jobs})).json["jobs"]
    assert flaws_in(answer) == 100
    assert [each["leftOut"] for each in answer] == [30] * 5 + [50] * 5


async def test_atomic_batch_lists_100_flaws_and_counts_the_rest(strict: Client) -> None:
    jobs = [job_with(["no"] * 50) for _ in range(10)]
    problem = (await strict.post("/v1/jobs/batch?atomic=true", {"jobs": jobs})).json
    assert (len(problem["errors"]), problem["leftOut"]) == (100, 400)
    assert problem["detail"].startswith("500 values are not valid")


async def test_problem_response_size_is_bounded(strict: Client) -> None:
    large = "x" * 100_000
    response = await strict.post("/v1/jobs/batch", {"jobs": [job_with([large, large]) for _ in range(20)]})
    assert len(response.body) < 100_000


async def test_replayed_batch_response_omits_the_same_flaws(strict: Client) -> None:
    sent = {"jobs": [job_with(["no"] * 50) for _ in range(10)]}
    first = await strict.post("/v1/jobs/batch", sent, idempotency_key="k")
    again = await strict.post("/v1/jobs/batch", sent, idempotency_key="k")
    assert (again.body, again.headers["idempotency-replay"]) == (first.body, "true")


def test_nearest_stops_after_the_maximum_of_suggestions() -> None:
    with few_suggestions(2):
        assert [nearest("mial", ["mail"]) for _ in range(4)] == ["mail", "mail", None, None]
    assert nearest("mial", ["mail"]) == "mail"


def test_nearest_compares_only_the_most_similar_names() -> None:
    names = [f"pool-{number}" for number in range(10 * MOST_COMPARED)]
    assert nearest("reprots", [*names, "reports"]) == "reports"
    assert nearest("pol-77", names) == "pool-77"
