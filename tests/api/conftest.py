from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from starlette.types import ASGIApp

from noonday.api.limits import ApiLimits
from tests.api.asgi import Client
from tests.api.engine import Backstage


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip tests of schemathesis unless they are selected: it makes its requests during collection, which takes ten
    seconds."""
    is_left_out = collection_path.name == "test_generated_requests.py" and config.option.markexpr == "not slow"
    return True if is_left_out else None


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
def app(backstage: Backstage, limits: ApiLimits) -> ASGIApp:
    return backstage.app(limits)


@pytest.fixture
def client(app: ASGIApp) -> Client:
    return Client(app, {"authorization": "Bearer operator"})
