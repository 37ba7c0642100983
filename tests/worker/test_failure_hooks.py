"""Hooks after failed attempts: which are called with what, and that none of them does harm."""

import asyncio
import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from noonday.crypto.keyring import Keyring
from noonday.model.errors import DoNotRetry
from noonday.model.handler import FailureHooks, Handler
from noonday.model.retry import DEFAULT_POLICY, RetryPolicy
from noonday.worker.context import Context, FailedAttempt
from noonday.worker.failure_hooks import MAX_CALLS, HookCaller, is_last_attempt
from noonday.worker.run import INTERRUPTED, TIMED_OUT, Run
from tests.support.eventually import eventually
from tests.worker.process_handlers import divide_by_zero
from tests.worker.runs import new_run

ERROR = ValueError("no such table")


def failed_run(error: Exception = ERROR, *, policy: RetryPolicy | None = None, **fields: Any) -> Run:
    """A run of the third attempt that has failed."""
    run = new_run(divide_by_zero, Keyring.generate())
    assert isinstance(run.handler, Handler)
    run.handler = replace(run.handler, hooks=FailureHooks(), retry_policy=policy)
    run.dispatch = type(run.dispatch)(**{n: getattr(run.dispatch, n) for n in run.dispatch.__struct_fields__} | fields)
    run.fail(error)
    return run


def hooks_of(run: Run) -> FailureHooks:
    assert run.handler is not None
    assert run.handler.hooks is not None
    return run.handler.hooks


def caller(timeout_sec: float = 60) -> HookCaller:
    return HookCaller(asyncio.get_running_loop(), timeout_sec)


async def ended(hooks: HookCaller) -> None:
    await eventually(lambda: hooks.pending == 0)


async def test_each_hook_gets_the_context_and_the_failure() -> None:
    seen: list[tuple[str, Context, FailedAttempt]] = []

    async def on_the_loop(ctx: Context, failed: FailedAttempt) -> None:
        seen.append((threading.current_thread().name, ctx, failed))

    def in_a_thread(ctx: Context, failed: FailedAttempt) -> None:
        seen.append((threading.current_thread().name, ctx, failed))

    run, calling = failed_run(), caller()
    hooks_of(run).on_failure += [on_the_loop, in_a_thread]
    calling.call(run)
    await ended(calling)
    (first, ctx, failed), (second, _, _) = seen
    assert (first, second != first) == (threading.current_thread().name, True)
    assert ctx is run.context
    assert (failed.outcome, failed.error.type, failed.exception, failed.is_last) == (
        "FAILED",
        "ValueError",
        ERROR,
        False,
    )
    calling.close()


async def test_hooks_of_the_dead_are_called_for_the_last_attempt_only() -> None:
    seen: list[str] = []

    async def failed(ctx: Context, attempt: FailedAttempt) -> None:
        seen.append("failed")

    async def dead(ctx: Context, attempt: FailedAttempt) -> None:
        seen.append("dead")

    calling = caller()
    for max_attempts in (4, 3):
        run = failed_run(max_attempts=max_attempts)
        hooks_of(run).on_failure.append(failed)
        hooks_of(run).on_dead.append(dead)
        calling.call(run)
        await ended(calling)
    assert seen == ["failed", "failed", "dead"]


@pytest.mark.parametrize(
    ("make", "is_last"),
    [
        (lambda: failed_run(attempt=DEFAULT_POLICY.max_attempts), True),
        (lambda: failed_run(attempt=DEFAULT_POLICY.max_attempts - 1), False),
        (lambda: failed_run(DoNotRetry("never"), attempt=1), True),
        (lambda: failed_run(policy=RetryPolicy(max_attempts=3)), True),
        (lambda: failed_run(policy=RetryPolicy(max_attempts=3), max_attempts=9), False),
        (lambda: failed_run(policy=RetryPolicy(max_attempts=9), max_attempts=0), False),
        (lambda: failed_run(policy=RetryPolicy(max_attempts=1), max_attempts=0, attempt=5), True),
        (lambda: failed_run(pool_max_attempts=3), True),
        (lambda: failed_run(pool_max_attempts=3, policy=RetryPolicy(max_attempts=9)), False),
        (lambda: failed_run(pool_max_attempts=3, max_attempts=9), False),
    ],
)
def test_the_policy_of_the_job_precedes_those_of_handler_and_pool(make: Callable[[], Run], is_last: bool) -> None:
    assert is_last_attempt(make()) is is_last


@pytest.mark.parametrize(
    ("reason", "is_last"), [(None, True), (TIMED_OUT, True), (INTERRUPTED, True), ("cancelled by ann", False)]
)
def test_a_cancelled_run_is_not_the_last_attempt(reason: str | None, is_last: bool) -> None:
    run = failed_run(max_attempts=3)
    run.stop_requested = reason
    assert is_last_attempt(run) is is_last


async def test_a_hook_that_raises_is_logged_and_the_next_one_is_called(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[str] = []

    async def broken(ctx: Context, failed: FailedAttempt) -> None:
        raise KeyError("mail server")

    def also_broken(ctx: Context, failed: FailedAttempt) -> None:
        raise KeyError("chat server")

    async def works(ctx: Context, failed: FailedAttempt) -> None:
        seen.append(ctx.execution_id)

    run, calling = failed_run(), caller()
    hooks_of(run).on_failure += [broken, also_broken, works]
    calling.call(run)
    await ended(calling)
    assert seen == ["execution-1"]
    names = [record.name for record in caplog.records if record.name.startswith("noonday")]
    assert names == ["noonday.handler.divide_by_zero"] * 2
    assert "broken raised KeyError" in caplog.text
    assert "mail server" in caplog.text
    calling.close()


async def test_a_hook_that_does_not_end_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    gate = threading.Event()

    async def hangs(ctx: Context, failed: FailedAttempt) -> None:
        await asyncio.Event().wait()

    def blocks(ctx: Context, failed: FailedAttempt) -> None:
        gate.wait()

    run, calling = failed_run(), caller(timeout_sec=0.01)
    hooks_of(run).on_failure += [hangs, blocks]
    calling.call(run)
    await ended(calling)
    assert caplog.text.count("did not end within 0.01 s") == 2
    gate.set()
    calling.close()


async def test_the_number_of_calls_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    gate, seen = asyncio.Event(), []

    async def waits(ctx: Context, failed: FailedAttempt) -> None:
        await gate.wait()
        seen.append(failed)

    run, calling = failed_run(), caller()
    hooks_of(run).on_failure.append(waits)
    with caplog.at_level(logging.ERROR):
        for _ in range(MAX_CALLS + 2):
            calling.call(run)
    gate.set()
    await ended(calling)
    assert len(seen) == MAX_CALLS
    assert caplog.text.count("hooks not called") == 2


def test_hooks_of_applications_that_include_each_other_are_called_once() -> None:
    inner, outer = FailureHooks(), FailureHooks()
    inner.included_by.append(outer)
    outer.included_by.append(inner)
    assert inner.with_including() == [inner, outer]
    assert outer.with_including() == [outer, inner]
