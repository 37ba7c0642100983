"""Waiting for something another thread or task does, with a deadline instead of a guess."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
PATIENCE_SEC = 60.0
"""Long enough for a machine with ten times as much to do. It matters only to a test that fails."""


async def eventually(look: Callable[[], T | Awaitable[T]], within_sec: float = PATIENCE_SEC) -> T:
    """Look again and again until there is something to see, and answer it."""
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
