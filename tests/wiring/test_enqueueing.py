"""Handlers that enqueue jobs, in a running engine: on the loop, in a thread, in a process."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from noonday import Context, Noonday, RetryPolicy, Snooze, testing
from noonday.model.errors import ExecutionFailed
from noonday.model.retry import Backoff
from tests.support.eventually import eventually

SOON = RetryPolicy(max_attempts=2, backoff=Backoff.FIXED, initial_delay_ms=1)
ONCE = RetryPolicy(max_attempts=1)
app = Noonday()


@app.handler
def child(ctx: Context, n: int) -> int:
    return n


async def on_the_loop(ctx: Context, n: int) -> str | None:
    enqueued = await ctx.enqueue(child, n, delay=timedelta(milliseconds=1))
    return end(ctx, enqueued.job_id)


def in_a_thread(ctx: Context, n: int) -> str | None:
    return end(ctx, ctx.enqueue("child", n, tags=("a",)).job_id)


def in_a_process(ctx: Context, n: int) -> str | None:
    first = ctx.enqueue(child, n, delay=timedelta(milliseconds=1), retry=RetryPolicy(max_attempts=7))
    named = ctx.enqueue("child", n + 1, name="second")
    assert ctx.enqueue("child", n + 1, name="second").job_id == named.job_id
    return end(ctx, first.job_id)


def refused_in_a_process(ctx: Context) -> None:
    ctx.enqueue("chid", 1)


def end(ctx: Context, job_id: str | None) -> str | None:
    if ctx.attempt == 1:
        raise ValueError("the first attempt fails after it has enqueued")
    return job_id


for function in (on_the_loop, in_a_thread):
    app.handler(retry=SOON)(function)
app.handler(process=True, retry=SOON)(in_a_process)
app.handler(process=True, retry=ONCE)(refused_in_a_process)


@pytest.mark.slow
@pytest.mark.parametrize("function", [on_the_loop, in_a_thread, in_a_process])
async def test_an_attempt_that_succeeds_has_its_jobs_run(function: Callable[..., Any]) -> None:
    async with app.embedded(":memory:") as engine:
        parent = await app.enqueue(function, 5)
        job_id = await app.result(parent, timeout=60)
        found: list[Any] = []

        async def exists() -> bool:
            found[:] = [job async for job in engine.list_jobs().items() if job.target.handler == "child"]
            return any(job.job_id == job_id for job in found)

        await eventually(exists)
        assert await app.result(await engine.get_job(job_id), timeout=60) == 5
        assert len(found) == (2 if function is in_a_process else 1)
        assert {job.tenant for job in found} == {parent.tenant}


@pytest.mark.slow
async def test_an_error_of_enqueue_is_raised_in_the_process_of_the_handler() -> None:
    async with app.embedded(":memory:"):
        job = await app.enqueue(refused_in_a_process)
        with pytest.raises(ExecutionFailed, match="unknown handler chid; did you mean child"):
            await app.result(job, timeout=60)


async def test_the_test_kit_creates_what_handlers_enqueue() -> None:
    ran = []
    kit_app = Noonday()

    @kit_app.handler
    async def leaf(ctx: Context, n: int) -> None:
        ran.append(n)

    @kit_app.handler
    async def fan_out(ctx: Context) -> None:
        for n in range(3):
            ctx.enqueue(leaf, n, delay=n * 60)

    async with testing.engine(kit_app) as t:
        await kit_app.enqueue(fan_out)
        await t.run_due()
        t.assert_enqueued(leaf, count=3)
        assert ran == [0]
        await t.advance(minutes=2)
        assert ran == [0, 1, 2]


async def test_a_snooze_creates_what_was_enqueued_and_a_name_means_one_job_across_snoozes() -> None:
    kit_app = Noonday()

    @kit_app.handler
    async def leaf(ctx: Context, n: int) -> None: ...

    @kit_app.handler
    async def polls(ctx: Context) -> None:
        ctx.enqueue(leaf, 1, name="once")
        ctx.enqueue(leaf, 2)
        if ctx._dispatch.number < 3:
            raise Snooze(10)

    async with testing.engine(kit_app) as t:
        await kit_app.enqueue(polls)
        await t.run_due()
        t.assert_enqueued(leaf, 1, count=1)
        t.assert_enqueued(leaf, 2, count=1)
        await t.advance(minutes=1)
        t.assert_enqueued(leaf, 1, count=1)
        t.assert_enqueued(leaf, 2, count=3)


async def test_a_context_of_a_test_has_what_was_enqueued() -> None:
    ctx = testing.context(app=app)
    child_of_it = ctx.enqueue(child, 7, name="seven")
    assert [(spec.target.handler, spec.payload, spec.name) for spec in testing.enqueued_by(ctx)] == [
        ("child", 7, "seven")
    ]
    assert child_of_it.job_id is not None


async def test_jobs_of_an_attempt_that_fails_do_not_exist() -> None:
    kit_app = Noonday()

    @kit_app.handler
    async def leaf(ctx: Context) -> None: ...

    @kit_app.handler(retry=ONCE)
    async def fails(ctx: Context) -> None:
        ctx.enqueue(leaf)
        raise ValueError("no")

    async with testing.engine(kit_app) as t:
        await kit_app.enqueue(fails)
        await t.run_due()
        t.refute_enqueued(leaf)


async def test_an_attempt_whose_jobs_are_refused_fails() -> None:
    kit_app = Noonday()

    @kit_app.handler(retry=ONCE)
    async def fans(ctx: Context) -> None:
        ctx.enqueue("h", pool="unknown")

    async with testing.engine(kit_app) as t:
        job = await kit_app.enqueue(fans)
        with pytest.raises(ExecutionFailed, match="EnqueueRefused: the jobs that this attempt enqueued were refused"):
            await kit_app.result(job)
        assert [each.job_id for each in t.jobs()] == [job.job_id]
