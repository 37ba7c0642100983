"""`@app.on_failure` and `@app.on_dead`, through a whole engine."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from noonday import Context, DoNotRetry, FailedAttempt, Noonday, RetryPolicy, testing
from noonday.model.errors import InvalidInput
from noonday.model.retry import Backoff
from noonday.model.view import PoolSettings
from noonday.wiring.running import OWNER
from tests.support.eventually import eventually

TWICE = RetryPolicy(max_attempts=2, backoff=Backoff.FIXED, initial_delay_ms=1)


async def on_the_loop(ctx: Context) -> None:
    raise ValueError("no such table")


def in_a_thread(ctx: Context) -> None:
    raise ValueError("no such table")


def in_a_process(ctx: Context) -> None:
    raise ValueError("no such table")


@pytest.mark.slow
@pytest.mark.parametrize("function", [on_the_loop, in_a_thread, in_a_process])
async def test_hooks_are_called_on_the_loop_of_the_application(function: Callable[..., Any]) -> None:
    app, seen = Noonday(), list[tuple[str, int, str, bool, bool]]()
    app.handler("nightly", process=function is in_a_process, retry=TWICE)(function)

    def note(hook: str, ctx: Context, failed: FailedAttempt) -> None:
        assert asyncio.get_running_loop() is here
        known = isinstance(failed.exception, ValueError)
        seen.append((hook, ctx.attempt, failed.error.message, known, failed.is_last))

    @app.on_failure
    async def on_failure(ctx: Context, failed: FailedAttempt) -> None:
        note("failure", ctx, failed)

    @app.on_dead
    async def on_dead(ctx: Context, failed: FailedAttempt) -> None:
        note("dead", ctx, failed)

    here = asyncio.get_running_loop()
    async with app.embedded(":memory:"):
        await app.enqueue("nightly")
        await eventually(lambda: len(seen) == 3)
    known = function is not in_a_process
    assert seen == [
        ("failure", 1, "no such table", known, False),
        ("failure", 2, "no such table", known, True),
        ("dead", 2, "no such table", known, True),
    ]


@pytest.mark.parametrize(
    ("of_job", "of_handler", "of_pool", "attempts"),
    [
        (3, 2, 1, 3),
        (None, 2, 1, 2),
        (None, None, 2, 2),
        (RetryPolicy().max_attempts, 1, None, RetryPolicy().max_attempts),
    ],
)
async def test_the_last_attempt_is_known_by_the_policy_that_holds(
    of_job: int | None, of_handler: int | None, of_pool: int | None, attempts: int
) -> None:
    def policy(most: int | None) -> RetryPolicy | None:
        return None if most is None else RetryPolicy(most, Backoff.FIXED, initial_delay_ms=1)

    app, dead, died = Noonday(), list[int](), asyncio.Event()

    @app.handler("nightly", pool="p", retry=policy(of_handler))
    async def nightly(ctx: Context) -> None:
        raise ValueError("no such table")

    @app.on_dead
    async def on_dead(ctx: Context, failed: FailedAttempt) -> None:
        dead.append(ctx.attempt)
        died.set()

    async with testing.engine(app) as engine:
        services = engine._engine.services
        await services.pools.put(OWNER, "p", PoolSettings(retry_policy=policy(of_pool)))
        await app.enqueue(nightly, retry=policy(of_job))
        await engine.advance(minutes=1)
        await died.wait()
        (execution,) = engine.executions("nightly")
    assert (execution.state, execution.attempt) == ("DEAD", attempts)
    assert dead == [attempts]


async def test_a_failure_that_is_not_to_be_retried_is_the_last(caplog: pytest.LogCaptureFixture) -> None:
    inner, outer, dead = Noonday(), Noonday(), list[str]()

    @inner.handler
    async def nightly(ctx: Context) -> None:
        raise DoNotRetry("the card has expired")

    @outer.on_dead
    async def of_the_whole(ctx: Context, failed: FailedAttempt) -> None:
        dead.append("outer")

    @inner.on_dead
    async def of_the_part(ctx: Context, failed: FailedAttempt) -> None:
        dead.append("inner")

    outer.include(inner)
    async with testing.engine(outer) as engine:
        await outer.enqueue(nightly)
        await engine.run_due()
        await eventually(lambda: len(dead) == 2)
        (execution,) = engine.executions("nightly")
    assert execution.state == "DEAD"
    assert dead == ["inner", "outer"]


def test_a_function_that_cannot_be_a_hook_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"expected two parameters, \(ctx, failed\)"):

        @Noonday().on_failure
        def hook(ctx: Context) -> None: ...
