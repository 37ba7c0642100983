"""Coroutines that wait for nothing, run without an event loop."""

from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_now(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in the present thread. Raises RuntimeError if it waits for something.

    `asyncio.sleep(0)` waits for nothing. This works beside a running event loop, which does not run meanwhile.
    """
    while True:
        try:
            awaited = coroutine.send(None)
        except StopIteration as ended:
            result: T = ended.value
            return result
        if awaited is not None:
            coroutine.close()
            raise RuntimeError(
                f"{getattr(coroutine, '__qualname__', coroutine)} waits for {awaited!r}, and no event loop runs it"
            )
