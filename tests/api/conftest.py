from collections.abc import AsyncIterator

import pytest
from starlette.applications import Starlette

from noonday.api.limits import ApiLimits
from tests.api.asgi import Client
from tests.api.engine import Backstage


@pytest.fixture
async def backstage() -> AsyncIterator[Backstage]:
    backstage = Backstage.make()
    await backstage.add_demo_pool()
    yield backstage
    await backstage.store.close()


@pytest.fixture
def limits() -> ApiLimits:
    return ApiLimits()


@pytest.fixture
def app(backstage: Backstage, limits: ApiLimits) -> Starlette:
    return backstage.app(limits)


@pytest.fixture
def client(app: Starlette) -> Client:
    return Client(app, {"authorization": "Bearer admin"})
