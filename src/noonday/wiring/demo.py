"""Demo handlers in the pool `demo`, which `noonday up` always runs."""

import asyncio
from typing import Any

from noonday.sdk.registry import Registry
from noonday.worker.context import Context

demo = Registry()


@demo.handler("demo.echo", pool="demo")
async def echo(ctx: Context, payload: Any = None) -> Any:
    """Return the payload."""
    return payload


@demo.handler("demo.sleep", pool="demo")
async def sleep(ctx: Context, payload: dict[str, Any] | None = None) -> str:
    """Sleep for `seconds` (default 10) and report progress."""
    seconds = float((payload or {}).get("seconds", 10))
    begun = int(ctx.progress.get("slept", 0))
    for slept in range(begun, int(seconds)):
        ctx.heartbeat({"slept": slept, "of": seconds})
        await asyncio.sleep(1)
    await asyncio.sleep(seconds % 1)
    return f"slept for {seconds:g} s"


@demo.handler("demo.fail", pool="demo")
async def fail(ctx: Context, payload: dict[str, Any] | None = None) -> str:
    """Fail `times` times (default: always), then succeed."""
    times = (payload or {}).get("times")
    ctx.logger.info("told to fail", times="always" if times is None else times)
    if times is None or ctx.attempt <= int(times):
        raise RuntimeError(f"attempt {ctx.attempt} was told to fail")
    return f"succeeded at attempt {ctx.attempt}"
