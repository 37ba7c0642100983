"""The stages of notifications on a store in memory."""

from collections.abc import AsyncIterator

import pytest

from noonday.drivers.sqlite.connection import MEMORY, FileOptions
from noonday.drivers.sqlite.store import open_store
from tests.notifications.factories import SendingBench


@pytest.fixture
async def bench() -> AsyncIterator[SendingBench]:
    store = open_store(MEMORY, FileOptions("OFF"), 0)
    made = SendingBench(store)
    await made.add_user()
    yield made
    await store.close()
