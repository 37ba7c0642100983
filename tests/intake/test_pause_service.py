"""Pauses, requested by tenants and operators."""

from collections.abc import AsyncIterator

import pytest

from noonday.intake.idempotency import AlreadyAnswered
from noonday.intake.pause_service import PauseService
from noonday.model.caller import Caller
from noonday.model.errors import Forbidden, NotFound
from noonday.model.pause import Pause
from tests.intake.parts import OLGA, STRANGER, Parts, key, parts_in_memory
from tests.support.factories import NOW_MS, POOL, TENANT, instant

ADMIN = Caller(TENANT, "ann", frozenset({"admin"}))


@pytest.fixture
async def parts() -> AsyncIterator[Parts]:
    async with parts_in_memory() as parts:
        await parts.add_worker()
        yield parts


@pytest.fixture
def pauses(parts: Parts) -> PauseService:
    return PauseService(
        settings_store=parts.store.settings_store,
        catalogue=parts.catalogue,
        receipts=parts.receipts,
        clock=parts.clock,
    )


async def test_pause_is_stored_with_its_time_and_who_requested_it(parts: Parts, pauses: PauseService) -> None:
    (view,) = (await pauses.add(OLGA, "POOL", POOL)).pauses
    assert (view.kind, view.name, view.since, view.by) == ("POOL", POOL, instant(NOW_MS), "olga")
    assert await parts.store.settings_store.pauses() == [Pause("POOL", POOL, NOW_MS, "olga")]


async def test_pause_fires_nothing_until_it_is_removed(parts: Parts, pauses: PauseService) -> None:
    await parts.add()
    await pauses.add(OLGA, "ALL", "")
    assert (await parts.crank.fire()).dispatches == ()
    await pauses.remove(OLGA, "ALL", "")
    assert len((await parts.crank.fire()).dispatches) == 1


async def test_tenant_pauses_only_itself(pauses: PauseService) -> None:
    await pauses.add(ADMIN, "TENANT", TENANT)
    with pytest.raises(Forbidden):
        await pauses.add(ADMIN, "TENANT", "globex")
    with pytest.raises(Forbidden):
        await pauses.add(STRANGER, "POOL", POOL)


async def test_unknown_pool_is_not_paused(pauses: PauseService) -> None:
    with pytest.raises(NotFound, match="no pool 'elt'; did you mean etl"):
        await pauses.add(OLGA, "POOL", "elt")


async def test_pause_of_a_pool_is_in_the_audit_log_of_every_tenant(parts: Parts, pauses: PauseService) -> None:
    await pauses.add(OLGA, "POOL", POOL)
    for tenant in (TENANT, STRANGER.tenant):
        rows = await parts.store.settings_store.list_audit(tenant, target=POOL, subject=None, after=None, limit=10)
        assert [(entry.action, entry.subject) for _, entry in rows] == [("pool.pause", "olga")]


async def test_repeated_request_is_answered_and_not_executed_again(parts: Parts, pauses: PauseService) -> None:
    await pauses.add(OLGA, "ALL", "", key())
    await pauses.remove(OLGA, "ALL", "")
    with pytest.raises(AlreadyAnswered):
        await pauses.add(OLGA, "ALL", "", key())
    assert (await pauses.list_pauses(OLGA)).pauses == ()
