"""Each test of a port runs once for every driver in `tests/support/drivers.py`."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from noonday.ports.bus import Bus
from noonday.ports.child_jobs import ChildJobs
from noonday.ports.execution_search import ExecutionSearch
from noonday.ports.executions import Executions
from noonday.ports.firing import Firing
from noonday.ports.hot_index import HotIndex
from noonday.ports.jobs import Jobs
from noonday.ports.leases import Leases
from noonday.ports.notifications import NotificationEvents, ScheduledNotifications, SendKeys
from noonday.ports.queries import QueryStore
from noonday.ports.settings import SettingsStore
from noonday.ports.signals import Signals
from noonday.ports.tokens import Tokens
from noonday.ports.workload import Workload
from tests.support.clock import ManualClock
from tests.support.crank import Crank
from tests.support.drivers import (
    BUSES,
    HOT_INDEXES,
    LEASES,
    NOTIFICATION_STORES,
    SEND_KEYS,
    SIGNALS,
    STORES,
    THREADED_STORE,
    TOKENS,
    Driver,
    NotificationStore,
    Store,
)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "also_threaded: runs on SQLite with threads, too")
    config.addinivalue_line("markers", "needs(*capabilities): skipped, visibly, for a driver that cannot do this")


def each(drivers: list[Driver[Any]]) -> Any:
    return pytest.fixture(params=drivers, ids=lambda driver: driver.name)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize each test with the drivers of its port.

    The threaded form of the SQLite store differs from the plain one by its connections alone, so a cross-section is enough.
    """
    if "store" in metafunc.fixturenames:
        is_in_section = metafunc.definition.get_closest_marker("also_threaded") is not None
        drivers = [*STORES, THREADED_STORE] if is_in_section else STORES
        metafunc.parametrize("store", drivers, indirect=True, ids=[driver.name for driver in drivers])


@pytest.fixture
async def store(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> AsyncIterator[Store]:
    async with chosen(request).open(tmp_path, clock) as opened:
        yield opened


@pytest.fixture
async def crank(store: Store) -> Crank:
    crank = Crank(store)
    await crank.own()
    return crank


@pytest.fixture
def jobs(store: Store) -> Jobs:
    return store.jobs


@pytest.fixture
def child_jobs(store: Store) -> ChildJobs:
    return store.child_jobs


@pytest.fixture
def firing(store: Store) -> Firing:
    return store.firing


@pytest.fixture
def executions(store: Store) -> Executions:
    return store.executions


@pytest.fixture
def query_store(store: Store) -> QueryStore:
    return store.query_store


@pytest.fixture
def execution_search(store: Store) -> ExecutionSearch:
    return store.execution_search


@pytest.fixture
def settings_store(store: Store) -> SettingsStore:
    return store.settings_store


@pytest.fixture
def workload(store: Store) -> Workload:
    return store.workload


@each(NOTIFICATION_STORES)
async def notification_store(
    request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock
) -> AsyncIterator[NotificationStore]:
    async with chosen(request).open(tmp_path, clock) as opened:
        yield opened


@pytest.fixture
def scheduled(notification_store: NotificationStore) -> ScheduledNotifications:
    return notification_store.scheduled_notifications


@pytest.fixture
def events(notification_store: NotificationStore) -> NotificationEvents:
    return notification_store.notification_events


@each(SEND_KEYS)
async def send_keys(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> AsyncIterator[SendKeys]:
    async with chosen(request).open(tmp_path, clock) as opened:
        yield opened


@each(HOT_INDEXES)
async def index(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> AsyncIterator[HotIndex]:
    async with chosen(request).open(tmp_path, clock) as opened:
        yield opened


@each(BUSES)
async def bus(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> AsyncIterator[Bus]:
    async with chosen(request).open(tmp_path, clock) as opened:
        yield opened


@each(TOKENS)
async def tokens(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> AsyncIterator[Tokens]:
    async with chosen(request).open(tmp_path, clock) as opened:
        yield opened


@each(SIGNALS)
async def signals(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> AsyncIterator[Signals]:
    async with chosen(request).open(tmp_path, clock) as opened:
        yield opened


@each(LEASES)
async def new_leases(
    request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock
) -> AsyncIterator[Callable[[], Leases]]:
    async with chosen(request).open(tmp_path, clock) as opened:
        yield opened


def chosen(request: pytest.FixtureRequest) -> Driver[Any]:
    """The driver of this run. Skips the test if the driver lacks a needed capability."""
    driver: Driver[Any] = request.param
    for mark in request.node.iter_markers("needs"):
        for capability in set(mark.args) - driver.capabilities:
            pytest.skip(f"{driver.name}: not so that {capability.value}")
    return driver
