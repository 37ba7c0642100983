"""Wait for the effect of another thread or task, with a deadline instead of a guess."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
PATIENCE_SEC = 60.0
"""Long enough for a machine with ten times the load. It matters only to a test that fails."""


async def eventually(look: Callable[[], T | Awaitable[T]], within_sec: float = PATIENCE_SEC) -> T:
    """Call `look` again and again until it returns something true, and return that."""
    deadline = time.monotonic() + within_sec
    while True:
        seen = look()
        if inspect.isawaitable(seen):
            seen = await seen
        if seen:
            return seen
        if time.monotonic() > deadline:
            raise AssertionError(f"did not happen within {within_sec:g} s: {inspect.getsource(look).strip()}")
        await asyncio.sleep(0.001)
