"""Servers of one file of tests, and leases that are closed at the end of their test."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any
from uuid import uuid4

import pytest

from noonday.drivers.etcd.gateway import EtcdOptions
from noonday.drivers.etcd.leases import EtcdLeases
from servers import Etcd, free_ports
from tests.support.drivers import ETCD_URLS

NewLeases = Callable[..., EtcdLeases]
PATIENT = EtcdOptions(timeout_sec=10.0)
"""So long that a busy machine fails no test that is not about time."""


@pytest.fixture(scope="module")
def own_etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    """One node that a test may harm."""
    with Etcd(tmp_path_factory.mktemp("etcd"), free_ports(2), nodes=1) as etcd:
        yield etcd


@pytest.fixture
async def new_leases() -> AsyncIterator[NewLeases]:
    """Open leases, by default of the etcd that all tests share. Each test has a prefix of its own."""
    prefix = f"test-{uuid4().hex}"
    async with AsyncExitStack() as opened:

        def one_more(endpoints: list[str] = ETCD_URLS, group: str = "scheduler", **options: Any) -> EtcdLeases:
            leases = EtcdLeases(endpoints, group, **{"prefix": prefix, "ttl_sec": 30, "options": PATIENT, **options})
            opened.push_async_callback(leases.close)
            return leases

        yield one_more
