from collections.abc import AsyncIterator

import pytest

from noonday.drivers.memory.bus import MemoryBus
from noonday.drivers.sqlite.connection import MEMORY, FileOptions
from noonday.drivers.sqlite.store import Store, open_store
from noonday.model.endpoint import EndpointLimits, EndpointSettings
from noonday.model.message import Dispatch
from noonday.ports.endpoints import Secret, SecretKind
from noonday.runtime.tracing import Tracing
from noonday.scheduler.publishing import KNOWN_SEC, Publisher
from tests.support.clock import ManualClock
from tests.support.factories import NOW_MS, POOL, TENANT, WORKER, audit, dispatch

THERE = "https://a.example:443"


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    store = open_store(MEMORY, FileOptions(), lead_ms=0)
    yield store
    await store.close()


class Published:
    def __init__(self, store: Store) -> None:
        self.clock = ManualClock()
        self.bus = MemoryBus(self.clock)
        self.publisher = Publisher(self.bus, store.endpoints, Tracing(None), self.clock)

    async def of(self, *dispatches: Dispatch) -> list[Dispatch]:
        await self.bus.join(WORKER, {POOL: 100})
        await self.publisher.publish(dispatches)
        return await self.bus.take(WORKER, {POOL: 100}, 0)


async def add(store: Store, name: str, at_ms: int = NOW_MS) -> None:
    secret = Secret(TENANT, name, THERE, SecretKind.HMAC, name.encode(), at_ms)
    await store.endpoints.add_secret(secret, at_ms + 60_000, None)


async def test_whoever_calls_somebody_is_given_what_to_sign_with(store: Store) -> None:
    await add(store, "x")
    taken = await Published(store).of(dispatch("a", endpoint=THERE), dispatch("b"))
    assert {each.execution_id: each.secrets for each in taken} == {"a": (b"x",), "b": ()}


async def test_a_new_secret_is_given_within_seconds(store: Store) -> None:
    await add(store, "x")
    published = Published(store)
    await published.of(dispatch(endpoint=THERE))
    await add(store, "y", NOW_MS + 1)
    published.clock.advance(KNOWN_SEC)
    (taken,) = await published.of(dispatch(endpoint=THERE))
    assert taken.secrets == (b"y", b"x")


async def test_whoever_has_no_secret_is_given_none(store: Store) -> None:
    (taken,) = await Published(store).of(dispatch(endpoint=THERE))
    assert taken.secrets == ()


async def test_limits_travel_with_calls_to_whom_they_are_of(store: Store) -> None:
    await store.endpoints.put((TENANT, THERE), EndpointSettings(rate_per_sec=2.5, burst=3), NOW_MS, audit())
    published = Published(store)
    taken = await published.of(dispatch("a", endpoint=THERE), dispatch("b", endpoint="https://b.example:443"))
    assert {each.execution_id: each.limits for each in taken} == {"a": EndpointLimits(None, 2.5, 3), "b": None}
    await store.endpoints.put((TENANT, THERE), EndpointSettings(), NOW_MS, audit())
    published.clock.advance(KNOWN_SEC)
    (taken_later,) = await published.of(dispatch("c", endpoint=THERE))
    assert taken_later.limits is None
