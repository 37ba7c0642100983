"""What a handler logs is kept with its execution, from the handler to the API."""

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from noonday import Context, Noonday, RetryPolicy, Snooze, testing
from noonday.model.errors import ExecutionFailed
from noonday.model.limits import KIB
from noonday.model.retry import Backoff

SOON = RetryPolicy(max_attempts=2, backoff=Backoff.FIXED, initial_delay_ms=1)


async def on_the_loop(ctx: Context) -> str:
    return say(ctx)


def in_a_thread(ctx: Context) -> str:
    return say(ctx)


def in_a_process(ctx: Context) -> str:
    return say(ctx)


def say(ctx: Context) -> str:
    ctx.logger.debug("not kept")
    ctx.logger.info("attempt %d", ctx.attempt, of="orders")
    if ctx.attempt == 1:
        try:
            raise ValueError("no such table")
        except ValueError:
            ctx.logger.exception("copy failed")
            raise
    return "done"


def dies(ctx: Context) -> None:
    ctx.logger.warning("last words")
    os.kill(os.getpid(), signal.SIGKILL)


async def logs_of(app: Noonday, execution: str) -> list[tuple[int, str, str]]:
    assert app.engine is not None
    found = await app.engine.get_execution_logs(execution)
    return [(each.attempt, each.outcome, each.text or "") for each in found.attempts]


@pytest.mark.slow
@pytest.mark.parametrize("function", [on_the_loop, in_a_thread, in_a_process])
async def test_each_attempt_keeps_what_it_logged(function: Callable[..., Any]) -> None:
    app = Noonday()
    app.handler("copy", process=function is in_a_process, retry=SOON)(function)
    async with app.embedded(":memory:"):
        job = await app.enqueue("copy")
        assert await app.result(job, timeout=60) == "done"
        assert app.engine is not None
        (execution,) = (await app.engine.get_job(job.job_id)).executions
        first, second = await logs_of(app, execution.execution_id)
    assert first[:2] == (1, "FAILED")
    lines = first[2].splitlines()
    assert lines[0].endswith(" INFO     attempt 1 of=orders")
    assert lines[1].endswith(" ERROR    copy failed")
    assert lines[2] == "Traceback (most recent call last):"
    assert lines[-1] == "ValueError: no such table"
    assert "not kept" not in first[2]
    assert second[:2] == (2, "SUCCEEDED")
    assert second[2].endswith(" INFO     attempt 2 of=orders\n")


@pytest.mark.slow
async def test_a_process_that_is_killed_keeps_what_it_logged() -> None:
    app = Noonday()
    app.handler("dies", process=True, retry=RetryPolicy(max_attempts=1))(dies)
    async with app.embedded(":memory:"):
        job = await app.enqueue("dies")
        with pytest.raises(ExecutionFailed):
            await app.result(job, timeout=60)
        assert app.engine is not None
        (execution,) = (await app.engine.get_job(job.job_id)).executions
        ((attempt, outcome, text),) = await logs_of(app, execution.execution_id)
    assert (attempt, outcome) == (1, "FAILED")
    assert text.endswith(" WARNING  last words\n")


@pytest.mark.parametrize("settings", [{"limits_log_bytes": 0}, {"worker_handler_log_level": "ERROR"}])
async def test_nothing_is_kept_if_a_setting_says_so(settings: dict[str, Any]) -> None:
    app = Noonday()

    @app.handler
    async def talk(ctx: Context) -> None:
        ctx.logger.info("hello")

    async with app.embedded(":memory:", **settings):
        job = await app.enqueue(talk)
        await app.result(job, timeout=60)
        assert app.engine is not None
        (execution,) = (await app.engine.get_job(job.job_id)).executions
        assert await logs_of(app, execution.execution_id) == []


async def test_the_last_lines_are_kept_and_a_note_of_the_others() -> None:
    app = Noonday()

    @app.handler
    async def talk(ctx: Context) -> None:
        for row in range(10_000):
            ctx.logger.info("row %d", row)

    async with testing.engine(app) as engine:
        await app.enqueue(talk)
        await engine.run_due()
        (execution,) = engine.executions("talk")
        ((_, _, text),) = await logs_of(app, execution.execution_id)
    assert len(text.encode()) <= 64 * KIB
    assert text.startswith("[")
    assert text.splitlines()[0].endswith("bytes) were dropped]")
    assert text.endswith("row 9999\n")


async def test_a_snoozed_execution_keeps_each_dispatch_of_its_attempt() -> None:
    app = Noonday()

    @app.handler
    async def wait(ctx: Context) -> None:
        ctx.logger.info("looking")
        if not ctx.progress:
            await ctx.heartbeat({"looked": True})
            raise Snooze(30)

    async with testing.engine(app) as engine:
        await app.enqueue(wait)
        await engine.advance(minutes=1)
        (execution,) = engine.executions("wait")
        kept = await logs_of(app, execution.execution_id)
    assert [(attempt, outcome) for attempt, outcome, _ in kept] == [(1, "SNOOZED"), (1, "SUCCEEDED")]


async def test_an_execution_that_logged_nothing_has_no_lines() -> None:
    app = Noonday()

    @app.handler
    async def silent(ctx: Context) -> None: ...

    async with testing.engine(app) as engine:
        await app.enqueue(silent)
        await engine.run_due()
        (execution,) = engine.executions("silent")
        assert await logs_of(app, execution.execution_id) == []
