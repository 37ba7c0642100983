"""The copy of pools and handlers against which new jobs are checked."""

from collections.abc import AsyncIterator

import pytest

from noonday.intake.catalogue import Catalogue
from noonday.model.errors import InvalidInput
from noonday.model.job import Target
from noonday.model.message import HandlerInfo
from noonday.model.view import PoolSettings
from tests.intake.parts import Parts, parts_in_memory
from tests.support.factories import HANDLER, POOL, audit, hello, spec

SCHEMA = {"type": "object", "properties": {"table": {"type": "string"}}, "required": ["table"]}


@pytest.fixture
async def parts() -> AsyncIterator[Parts]:
    async with parts_in_memory() as parts:
        yield parts


@pytest.fixture
def catalogue(parts: Parts) -> Catalogue:
    return Catalogue(parts.store.settings_store, parts.clock)


async def test_job_for_a_known_handler_has_no_warnings(parts: Parts, catalogue: Catalogue) -> None:
    await parts.add_worker()
    assert await catalogue.check(spec()) == ()


async def test_unknown_pool_is_refused_with_the_nearest_name(parts: Parts, catalogue: Catalogue) -> None:
    await parts.add_worker()
    with pytest.raises(InvalidInput, match="no pool elt") as refused:
        await catalogue.check(spec(target=Target("elt", HANDLER)))
    (flaw,) = refused.value.flaws
    assert (flaw.pointer, flaw.nearest) == ("/target/pool", POOL)


async def test_handler_that_no_worker_has_yet_is_a_warning(parts: Parts, catalogue: Catalogue) -> None:
    await parts.store.settings_store.put_pool(POOL, PoolSettings(), audit())
    (warning,) = await catalogue.check(spec())
    assert warning == f"no worker has registered handler {HANDLER!r} in pool {POOL!r} yet: executions will wait"


async def test_the_warning_of_an_unknown_handler_names_the_nearest_one(parts: Parts, catalogue: Catalogue) -> None:
    infos = [HandlerInfo(POOL, name) for name in ("send_invoice", "send_report")]
    await parts.crank.settle(signs=[hello("w-1", *infos), hello("w-2", HandlerInfo("mail", "send_invoices"))])
    (warning,) = await catalogue.check(spec(target=Target(POOL, "send_invoces")))
    assert warning.endswith("yet: executions will wait; did you mean 'send_invoice'?")
    (warning,) = await catalogue.check(spec(target=Target(POOL, "zzz")))
    assert warning.endswith("yet: executions will wait")


async def test_a_handler_that_is_registered_later_is_suggested_after_a_second(
    parts: Parts, catalogue: Catalogue
) -> None:
    await parts.crank.settle(signs=[hello("w-1", HandlerInfo(POOL, "other"))])
    wanted = spec(target=Target(POOL, "send"))
    assert "did you mean" not in (await catalogue.check(wanted))[0]
    await parts.crank.settle(signs=[hello("w-2", HandlerInfo(POOL, "sends"))])
    parts.clock.advance(1)
    assert "did you mean 'sends'?" in (await catalogue.check(wanted))[0]


async def test_pool_that_was_just_created_is_found_at_once(parts: Parts, catalogue: Catalogue) -> None:
    assert await catalogue.pools(POOL) == []
    await parts.store.settings_store.put_pool(POOL, PoolSettings(), audit())
    assert await catalogue.pools(POOL) == [POOL]


async def test_payload_that_the_schema_does_not_allow_is_refused_with_its_place(
    parts: Parts, catalogue: Catalogue
) -> None:
    await parts.crank.settle(signs=[hello("w-1", HandlerInfo(POOL, HANDLER, SCHEMA))])
    assert await catalogue.check(spec(payload={"table": "orders"})) == ()
    with pytest.raises(InvalidInput, match="does not match the schema of handler 'load'") as refused:
        await catalogue.check(spec(payload={"table": 7}))
    assert [flaw.pointer for flaw in refused.value.flaws] == ["/payload/table"]


async def test_copy_is_read_again_after_a_second(parts: Parts, catalogue: Catalogue) -> None:
    await parts.add_worker()
    await catalogue.check(spec())
    await parts.crank.settle(signs=[hello("w-2", HandlerInfo(POOL, HANDLER, SCHEMA))])
    assert catalogue.is_simple(spec())
    parts.clock.advance(1)
    assert not catalogue.is_simple(spec())
    with pytest.raises(InvalidInput):
        await catalogue.check(spec(payload={"table": 7}))


async def test_forgotten_copy_is_read_again(parts: Parts, catalogue: Catalogue) -> None:
    await parts.add_worker()
    await catalogue.check(spec())
    catalogue.forget()
    assert not catalogue.is_simple(spec())
