from typing import cast

import pytest
from starlette.applications import Starlette

from noonday.api.app import create_app
from noonday.api.limits import ApiLimits
from noonday.model.job import JobSpec
from tests.api.asgi import Client
from tests.api.engine import FakeDesk, FakeReading, Memory, Pulse, Tokens

NOON_MS = 1_893_499_200_000
"""2030-01-01T12:00:00Z"""


@pytest.fixture
def memory() -> Memory:
    return Memory(NOON_MS)


@pytest.fixture
def reading(memory: Memory) -> FakeReading:
    return FakeReading(memory)


@pytest.fixture
def pulse() -> Pulse:
    return Pulse()


@pytest.fixture
def limits() -> ApiLimits:
    return ApiLimits()


@pytest.fixture
def app(memory: Memory, reading: FakeReading, pulse: Pulse, limits: ApiLimits) -> Starlette:
    return create_app(FakeDesk(memory), reading, Tokens(), pulse, limits=limits, now_ms=lambda: memory.now_ms)


@pytest.fixture
def client(app: Starlette) -> Client:
    return Client(app, {"authorization": "Bearer admin"})
