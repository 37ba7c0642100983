from collections.abc import AsyncIterator, Sequence

import msgspec
import pytest

from noonday.drivers.memory.bus import MemoryBus
from noonday.drivers.sqlite.connection import MEMORY, FileOptions
from noonday.drivers.sqlite.store import SqliteStore, open_store
from noonday.model.endpoint import EndpointLimits, EndpointSettings
from noonday.model.execution import Outcome, State
from noonday.model.message import Dispatch, Oversized, Report
from noonday.model.secret import Secret, SecretKind
from noonday.runtime.tracing import Tracing
from noonday.scheduler.publishing import CACHE_SEC, REPORTS_PARTITION, Publisher
from tests.support.clock import ManualClock
from tests.support.crank import Crank
from tests.support.factories import NOW_MS, POOL, TENANT, WORKER, audit, dispatch, job

THERE = "https://a.example:443"


@pytest.fixture
async def store() -> AsyncIterator[SqliteStore]:
    store = open_store(MEMORY, FileOptions(), lead_ms=0)
    yield store
    await store.close()


class Published:
    def __init__(self, store: SqliteStore) -> None:
        self.clock = ManualClock()
        self.bus = MemoryBus(self.clock)
        self.publisher = Publisher(self.bus, store.endpoints, Tracing(None), self.clock)

    async def of(self, *dispatches: Dispatch) -> list[Dispatch]:
        await self.bus.join(WORKER, {POOL: 100})
        await self.publisher.publish(dispatches)
        return await self.bus.take(WORKER, {POOL: 100}, 0)


async def add(store: SqliteStore, name: str, at_ms: int = NOW_MS) -> None:
    secret = Secret(TENANT, name, THERE, SecretKind.HMAC, name.encode(), at_ms)
    await store.endpoints.add_secret(secret, at_ms + 60_000, None)


async def test_dispatch_with_an_endpoint_has_its_secrets(store: SqliteStore) -> None:
    await add(store, "x")
    taken = await Published(store).of(dispatch("a", endpoint=THERE), dispatch("b"))
    assert {each.execution_id: each.secrets for each in taken} == {"a": (b"x",), "b": ()}


async def test_a_new_secret_is_given_within_seconds(store: SqliteStore) -> None:
    await add(store, "x")
    published = Published(store)
    await published.of(dispatch(endpoint=THERE))
    await add(store, "y", NOW_MS + 1)
    published.clock.advance(CACHE_SEC)
    (taken,) = await published.of(dispatch(endpoint=THERE))
    assert taken.secrets == (b"y", b"x")


async def test_dispatch_without_a_secret_has_none(store: SqliteStore) -> None:
    (taken,) = await Published(store).of(dispatch(endpoint=THERE))
    assert taken.secrets == ()


async def test_dispatch_has_the_limits_of_its_endpoint(store: SqliteStore) -> None:
    await store.endpoints.put((TENANT, THERE), EndpointSettings(rate_per_sec=2.5, burst=3), NOW_MS, audit())
    published = Published(store)
    taken = await published.of(dispatch("a", endpoint=THERE), dispatch("b", endpoint="https://b.example:443"))
    assert {each.execution_id: each.limits for each in taken} == {"a": EndpointLimits(None, 2.5, 3), "b": None}
    await store.endpoints.put((TENANT, THERE), EndpointSettings(), NOW_MS, audit())
    published.clock.advance(CACHE_SEC)
    (taken_later,) = await published.of(dispatch("c", endpoint=THERE))
    assert taken_later.limits is None


class NarrowBus(MemoryBus):
    """Takes no dispatch with a payload of more than ten bytes."""

    async def publish(self, dispatches: Sequence[Dispatch]) -> Sequence[Oversized[Dispatch]]:
        large = [each for each in dispatches if len(each.payload or b"") > 10]
        await super().publish([each for each in dispatches if each not in large])
        return [Oversized(each, len(each.payload or b""), 10) for each in large]


async def test_dispatch_larger_than_a_message_ends_with_a_report_of_the_reason(store: SqliteStore) -> None:
    clock = ManualClock()
    bus = NarrowBus(clock)
    await bus.join(WORKER, {POOL: 100})
    publisher = Publisher(bus, store.endpoints, Tracing(None), clock)
    await publisher.publish([dispatch("a"), dispatch("b", payload=bytes(11)), dispatch("c")])
    assert [each.execution_id for each in await bus.take(WORKER, {POOL: 100}, 0)] == ["a", "c"]
    (told,) = (await bus.read(REPORTS_PARTITION, 0, 10, 0)).entries
    assert isinstance(told, Report)
    assert (told.execution_id, told.dispatch, told.outcome) == ("b", 1, Outcome.FAILED)
    assert told.failure is not None
    assert not told.failure.retryable
    assert "dispatch has 11 bytes (payload 11, progress 0), maximum 10" in told.failure.message


async def test_report_of_an_oversized_dispatch_makes_a_dead_letter(store: SqliteStore) -> None:
    crank = Crank(store)  # type: ignore[arg-type]
    await crank.own()
    one = job()
    await crank.add(one)
    fired = await crank.fire_one()
    bus = NarrowBus(ManualClock())
    publisher = Publisher(bus, store.endpoints, Tracing(None), ManualClock())
    await publisher.publish([msgspec.structs.replace(fired, payload=bytes(11))])
    (told,) = (await bus.read(REPORTS_PARTITION, 0, 10, 0)).entries
    assert isinstance(told, Report)
    await crank.settle(told)
    assert (await crank.look(fired)).state is State.DEAD
