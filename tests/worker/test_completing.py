"""Completions by a run of its own end."""

from typing import Any

import msgspec
import pytest

from noonday.crypto.envelope import context_of
from noonday.crypto.keyring import Keyring
from noonday.model.errors import Conflict, InvalidInput
from noonday.model.execution import Outcome
from noonday.model.handler import Handler, Mode
from noonday.model.message import Report, Token
from noonday.model.nesting import MOST_LEVELS
from noonday.ports.completions import Completions
from noonday.worker.completing import Completer
from noonday.worker.identity import Identity
from noonday.worker.run import Run
from tests.support.clock import ManualClock
from tests.support.factories import HANDLER, POOL, WORKER, dispatch


class Kept(Completions):
    """Completions that accept every run."""

    def __init__(self) -> None:
        self.reports: list[tuple[Report, str | None]] = []

    async def complete(self, connection: Any, report: Report, now_ms: int, *, schema: str | None = None) -> None:
        self.reports.append((report, schema))


@pytest.fixture
def keyring() -> Keyring:
    return Keyring.generate()


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def begun(keyring: Keyring, kept: Kept, clock: ManualClock, mode: Mode = Mode.ASYNC) -> Run:
    """A run whose handler has just been entered."""
    handler = Handler(HANDLER, POOL, print, mode)
    identity = Identity(WORKER, Completer(kept, WORKER, keyring, clock, 100))
    run = Run(dispatch(), Token(1, 0), handler, identity)
    run.started_ms = clock.now_ms()
    run.open_payload(keyring)
    return run


async def test_a_run_reports_its_success_with_its_result_sealed(
    keyring: Keyring, kept: Kept, clock: ManualClock
) -> None:
    run = begun(keyring, kept, clock)
    assert run.context is not None
    run.context.heartbeat({"step": 3})
    await run.context.complete(object(), {"a": 1}, schema="theirs")
    ((report, schema),) = kept.reports
    context = context_of(run.dispatch.tenant, run.dispatch.job_id)
    assert (report.execution_id, report.dispatch, report.worker_id) == (run.dispatch.execution_id, 1, WORKER)
    assert (report.outcome, report.started_ms, schema) == (Outcome.SUCCEEDED, run.started_ms, "theirs")
    assert keyring.open(report.result or b"", context) == b'{"a":1}'
    assert keyring.open(report.progress or b"", context) == b'{"step":3}'
    assert run.is_completed


def test_a_run_reports_whose_it_was_and_how_large_its_payload_was(
    keyring: Keyring, kept: Kept, clock: ManualClock
) -> None:
    run = begun(keyring, kept, clock)
    report = run.report(WORKER, keyring)
    assert (report.tenant, report.payload_bytes) == (run.dispatch.tenant, len(run.dispatch.payload or b"?"))
    without = Run(dispatch(payload=None), Token(1, 0), run.handler).report(WORKER, keyring)
    assert without.payload_bytes == 0


async def test_a_result_that_is_too_large_is_refused_before_anything_is_written(
    keyring: Keyring, kept: Kept, clock: ManualClock
) -> None:
    run = begun(keyring, kept, clock)
    assert run.context is not None
    with pytest.raises(InvalidInput, match="more than 100"):
        await run.context.complete(object(), "x" * 100)
    assert (kept.reports, run.is_completed) == ([], False)


@pytest.mark.parametrize("mode", [Mode.THREAD, Mode.PROCESS])
def test_a_plain_function_cannot_complete(keyring: Keyring, kept: Kept, clock: ManualClock, mode: Mode) -> None:
    run = begun(keyring, kept, clock, mode)
    assert run.context is not None
    with pytest.raises(Conflict, match="only in a coroutine handler"):
        run.context.complete(object())


def nested(levels: int) -> Any:
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    return value


async def test_a_result_or_progress_that_is_nested_too_deeply_is_refused(
    keyring: Keyring, kept: Kept, clock: ManualClock
) -> None:
    run = begun(keyring, kept, clock)
    assert run.context is not None
    with pytest.raises(InvalidInput, match="the progress is nested more than 100 levels"):
        run.context.heartbeat(nested(MOST_LEVELS + 1))
    with pytest.raises(InvalidInput, match="the result is nested more than 100 levels"):
        await run.context.complete(object(), nested(MOST_LEVELS + 1))
    run.context.heartbeat(nested(MOST_LEVELS))
    assert kept.reports == []


def test_handler_that_returns_too_deeply_nested_data_has_failed(keyring: Keyring) -> None:
    handler = Handler(HANDLER, POOL, print, Mode.ASYNC, encode=msgspec.json.encode)
    run = Run(dispatch(), Token(1, 0), handler)
    run.succeed(nested(MOST_LEVELS + 1), result_limit=10_000)
    assert run.outcome is Outcome.FAILED
    assert run.failure is not None
    assert (run.failure.type, run.failure.retryable) == ("ResultTooDeep", False)
