"""The services of intake over a store in memory."""

from collections.abc import AsyncIterator

import pytest

from tests.api.engine import Backstage


@pytest.fixture
async def backstage() -> AsyncIterator[Backstage]:
    """Has the pool `demo`, and no worker."""
    backstage = Backstage.make()
    await backstage.add_demo_pool()
    yield backstage
    await backstage.store.close()
