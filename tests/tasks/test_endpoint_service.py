"""Settings, health, enabling and disabling of endpoints."""

from collections.abc import AsyncIterator

import pytest

from noonday.intake.job_service import JobService
from noonday.model.endpoint import EndpointSettings, endpoint_id
from noonday.model.errors import Conflict, NotFound
from noonday.runtime.tracing import Tracing
from noonday.tasks.endpoint_disabler import EndpointDisabler
from noonday.tasks.endpoints import CACHE_SEC, EndpointService
from tests.intake.parts import ANN, STRANGER, Parts, parts_in_memory
from tests.support.factories import NOW_MS, TENANT, instant, job_id
from tests.tasks.parts import add_task

ENDPOINT = "https://api.example.com:443"
ID = endpoint_id(ENDPOINT)


@pytest.fixture
async def parts() -> AsyncIterator[Parts]:
    async with parts_in_memory() as parts:
        yield parts


@pytest.fixture
def endpoints(parts: Parts) -> EndpointService:
    jobs = JobService(
        jobs=parts.store.jobs,
        editor=parts.editor,
        sender=parts.sender,
        drafter=parts.drafter,
        quotas=parts.quotas,
        query_store=parts.store.query_store,
        receipts=parts.receipts,
        presenter=parts.presenter,
        clock=parts.clock,
        tracing=Tracing(None),
        new_id=job_id,
    )
    disabler = EndpointDisabler(parts.store.endpoints, jobs)
    return EndpointService(parts.store.endpoints, disabler, parts.receipts, parts.clock)


async def halted(parts: Parts, of: str) -> str | None:
    """Return why a task is halted."""
    row = await parts.store.query_store.find_job(TENANT, of)  # type: ignore[arg-type]
    assert row is not None
    return row.job.halted


async def test_settings_of_an_endpoint_can_be_set_before_it_is_called(endpoints: EndpointService) -> None:
    view = await endpoints.put(ANN, ID, EndpointSettings(max_concurrency=3))
    assert (view.id, view.endpoint, view.settings.max_concurrency) == (ID, ENDPOINT, 3)
    assert (await endpoints.get(ANN, ID)).settings == view.settings


async def test_endpoint_without_calls_and_settings_is_not_found(endpoints: EndpointService) -> None:
    with pytest.raises(NotFound, match="it was never called and has no settings"):
        await endpoints.get(ANN, ID)


@pytest.mark.parametrize("name", ["api.example.com", "ep_", endpoint_id("https://api.example.com/path")])
async def test_malformed_id_is_not_found(endpoints: EndpointService, name: str) -> None:
    with pytest.raises(NotFound):
        await endpoints.put(ANN, name, EndpointSettings())


async def test_endpoints_are_listed_in_pages_by_name(endpoints: EndpointService) -> None:
    names = [f"https://{letter}.example:443" for letter in "cab"]
    for name in names:
        await endpoints.put(ANN, endpoint_id(name), EndpointSettings())
    first = await endpoints.list_endpoints(ANN, limit=2)
    rest = await endpoints.list_endpoints(ANN, limit=2, cursor=first.next)
    assert [view.endpoint for view in (*first.endpoints, *rest.endpoints)] == sorted(names)
    assert (await endpoints.list_endpoints(STRANGER)).endpoints == ()


async def test_disabled_endpoint_halts_its_tasks_and_says_who_disabled_it(
    parts: Parts, endpoints: EndpointService
) -> None:
    task = await add_task(parts)
    view = await endpoints.disable(ANN, ID)
    assert (view.health.disabled_at, view.health.disabled_because) == (instant(NOW_MS), "was disabled by ann")
    assert await halted(parts, task.id) == f"endpoint disabled: {ENDPOINT} was disabled by ann"


async def test_enabled_endpoint_resumes_the_tasks_that_were_halted_with_it(
    parts: Parts, endpoints: EndpointService
) -> None:
    task = await add_task(parts)
    await endpoints.disable(ANN, ID)
    view = await endpoints.enable(ANN, ID)
    assert view.health.disabled_at is None
    assert await halted(parts, task.id) is None


async def test_task_for_a_disabled_endpoint_is_refused_with_the_next_step(endpoints: EndpointService) -> None:
    await endpoints.disable(ANN, ID)
    with pytest.raises(Conflict, match=f"noonday endpoint enable {ENDPOINT}"):
        await endpoints.refuse_disabled(TENANT, ENDPOINT)


async def test_task_without_an_endpoint_is_never_refused(endpoints: EndpointService) -> None:
    await endpoints.disable(ANN, ID)
    await endpoints.refuse_disabled(TENANT, None)
    await endpoints.refuse_disabled(TENANT, "https://elsewhere.example:443")


async def test_endpoint_that_another_process_disabled_is_refused_within_seconds(
    parts: Parts, endpoints: EndpointService
) -> None:
    other = EndpointService(parts.store.endpoints, endpoints._endpoint_disabler, parts.receipts, parts.clock)
    await endpoints.refuse_disabled(TENANT, ENDPOINT)
    await other.disable(ANN, ID)
    await endpoints.refuse_disabled(TENANT, ENDPOINT)
    parts.clock.advance(CACHE_SEC)
    with pytest.raises(Conflict):
        await endpoints.refuse_disabled(TENANT, ENDPOINT)
