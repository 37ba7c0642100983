"""Revocations are copied from the store when the signals have lost them."""

from collections.abc import AsyncIterator, Sequence

import pytest

from noonday.drivers.memory.signals import MemorySignals
from noonday.drivers.sqlite.connection import MEMORY, FileOptions
from noonday.drivers.sqlite.store import SqliteStore, open_store
from noonday.intake import edits
from noonday.model.claim import Revocation
from noonday.model.message import Dispatch
from noonday.recorder.revocation_keeper import COPY_EVERY_SEC, RevocationKeeper
from tests.support.clock import ManualClock
from tests.support.crank import Crank
from tests.support.factories import NOW_MS, POOL, audit, job


class ForgetfulSignals(MemorySignals):
    """May lose its memory. Notes from when on a generation allows starts, and each copy."""

    def __init__(self) -> None:
        super().__init__()
        self.fenced_before_ms: list[int] = []
        self.copies: list[list[Revocation]] = []

    def lose_memory(self) -> None:
        self._generations.clear()
        self._revocations.clear()

    async def begin_generation(self, pool: str, fenced_before_ms: int = 0) -> None:
        self.fenced_before_ms.append(fenced_before_ms)
        await super().begin_generation(pool, fenced_before_ms)

    async def revoke(self, pool: str, revocations: Sequence[Revocation]) -> None:
        self.copies.append(list(revocations))
        await super().revoke(pool, revocations)


class Bench:
    def __init__(self, store: SqliteStore) -> None:
        self.crank, self.clock, self.signals = Crank(store), ManualClock(), ForgetfulSignals()  # type: ignore[arg-type]
        self.pools = [POOL]
        self.keeper = RevocationKeeper(store.executions, self.signals, self._read_pools, self.clock)

    async def _read_pools(self) -> Sequence[str]:
        return self.pools

    async def round(self) -> int:
        return await self.keeper.run_once(self.clock.now_ms())

    async def revoked(self) -> Dispatch:
        """A dispatch that the store has revoked."""
        one = job()
        await self.crank.own()
        await self.crank.add(one)
        dispatch = await self.crank.fire_one()
        await self.crank.change(
            one, lambda before: edits.cancel_execution(before, dispatch.execution_id, "cancelled by ann", audit())
        )
        return dispatch


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    store = open_store(MEMORY, FileOptions(), lead_ms=0)
    yield Bench(store)
    await store.close()


async def test_generation_begins_only_after_the_revocations_are_copied(bench: Bench) -> None:
    dispatch = await bench.revoked()
    assert await bench.signals.pre_start_check(POOL, [dispatch]) is None
    assert await bench.round() == 1
    assert await bench.signals.pre_start_check(POOL, [dispatch]) == {dispatch.execution_id: "cancelled by ann"}


async def test_lost_memory_is_restored_and_fences_what_was_fired_before(bench: Bench) -> None:
    dispatch = await bench.revoked()
    await bench.round()
    bench.signals.lose_memory()
    bench.clock.advance(60)
    assert await bench.round() == 1
    assert bench.signals.fenced_before_ms[-1] == NOW_MS + 60_000
    assert await bench.signals.pre_start_check(POOL, [dispatch]) == {dispatch.execution_id: "cancelled by ann"}


async def test_first_generation_of_a_new_pool_fences_nothing(bench: Bench) -> None:
    """Nothing can have run there before."""
    await bench.round()
    bench.pools.append("new")
    await bench.round()
    assert bench.signals.fenced_before_ms == [NOW_MS, 0]


async def test_generation_that_is_alive_is_left_alone(bench: Bench) -> None:
    await bench.round()
    assert await bench.round() == 0
    assert len(bench.signals.fenced_before_ms) == 1


async def test_revocations_are_copied_again_from_time_to_time(bench: Bench) -> None:
    """One that could not be copied when it was stored reaches the workers all the same."""
    await bench.round()
    dispatch = await bench.revoked()
    await bench.round()
    assert bench.signals.copies == []
    bench.clock.advance(COPY_EVERY_SEC)
    await bench.round()
    assert bench.signals.copies == [[(dispatch.execution_id, 1, "cancelled by ann")]]
