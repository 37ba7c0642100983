"""The cost of a request for fire times is limited."""

from collections.abc import AsyncIterator, Callable
from typing import TypeVar

import pytest

from noonday.api.limits import ApiLimits
from noonday.model.errors import Busy
from noonday.ports.offload import MayContinue, Offload
from tests.api.asgi import Client
from tests.api.engine import Backstage

T = TypeVar("T")
RARE = {"schedule": "30 2 29 2 */7", "timezone": "Europe/Berlin"}


class Steps(Offload):
    """A budget of so many steps."""

    def __init__(self, most: int) -> None:
        self.most = most

    async def run(self, work: Callable[[MayContinue], T]) -> T:
        if not self.most:
            raise Busy("too much")
        left = iter([True] * self.most)
        return work(lambda: next(left, False))


@pytest.fixture
def steps() -> Steps:
    return Steps(3)


@pytest.fixture
async def tight(steps: Steps) -> AsyncIterator[Client]:
    backstage = Backstage.make(steps)
    await backstage.add_demo_pool()
    yield Client(backstage.app(ApiLimits()), {"authorization": "Bearer write"})
    await backstage.store.close()


async def test_preview_that_costs_too_much_is_cut_short_and_marked(tight: Client) -> None:
    preview = (await tight.post("/v1/schedules/preview", RARE | {"count": 1000})).json
    assert (len(preview["times"]), preview["isLeast"]) == (3, True)
    assert preview["times"][0]["utc"] == "2032-02-29T01:30:00Z"


async def test_a_preview_within_its_budget_is_whole(tight: Client) -> None:
    preview = (await tight.post("/v1/schedules/preview", {"schedule": "0 * * * *", "count": 3})).json
    assert (len(preview["times"]), preview["isLeast"]) == (3, False)


async def test_occurrences_that_cost_too_much_are_cut_short(tight: Client) -> None:
    job = {"type": "CRON", "target": {"pool": "demo", "handler": "h"}} | RARE
    made = await tight.post("/v1/jobs", job)
    assert (made.status, made.json["nextFireAt"]) == (201, "2032-02-29T01:30:00Z")
    page = (await tight.get(f"/v1/jobs/{made.json['jobId']}/occurrences?to=8999-01-01T00:00:00Z")).json
    assert (len(page["occurrences"]), page["isLeast"]) == (3, True)


async def test_occurrences_stop_at_the_end_of_the_range(tight: Client) -> None:
    job = {"type": "CRON", "target": {"pool": "demo", "handler": "h"}} | RARE
    made = (await tight.post("/v1/jobs", job)).json
    page = (await tight.get(f"/v1/jobs/{made['jobId']}/occurrences?to=2070-01-01T00:00:00Z")).json
    assert (len(page["occurrences"]), page["isLeast"]) == (2, False)


async def test_busy_preview_workers_refuse_with_retry_after(tight: Client, steps: Steps) -> None:
    steps.most = 0
    response = await tight.post("/v1/schedules/preview", RARE)
    assert (response.status, response.code, response.headers["retry-after"]) == (503, "busy", "1")
