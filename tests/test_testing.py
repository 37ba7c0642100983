"""The test kit: an engine that runs on demand, contexts, and fixtures."""

import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pydantic import BaseModel

from noonday import Context, Noonday, testing
from noonday.model.errors import Conflict, ExecutionFailed, InvalidInput
from noonday.wiring.running import Running
from noonday.worker.context import Cancelled

NINE = datetime(2030, 1, 1, 9, tzinfo=UTC)


@dataclass
class Mail:
    to: str


class Order(BaseModel):
    number: int


app = Noonday()


@app.handler("send_mail", pool="mail")
async def send_mail(ctx: Context, mail: Mail) -> str:
    await ctx.heartbeat({"opened": True})
    return f"{mail.to}, attempt {ctx.attempt}"


@app.handler("ship", pool="shop")
def ship(ctx: Context, order: Order) -> int:
    ctx.raise_if_cancelled()
    return order.number


@app.handler
def fail(ctx: Context) -> None:
    raise ValueError("broken")


engine = testing.fixture(app, start=NINE)


async def test_result_runs_what_is_due(engine: testing.Testing) -> None:
    assert await app.result(await app.enqueue(send_mail, Mail("ada"))) == "ada, attempt 1"


async def test_result_of_a_later_job_says_to_move_the_clock(engine: testing.Testing) -> None:
    job = await app.enqueue(send_mail, Mail("ada"), delay=60)
    with pytest.raises(
        AssertionError, match=rf"{job.job_id} has not ended at 2030-01-01 09:00:00.*no execution.*advance"
    ):
        await app.result(job)
    await engine.advance(minutes=1)
    assert await app.result(job.job_id) == "ada, attempt 1"


async def test_result_of_a_failed_execution_says_that_it_waits_for_its_retry(engine: testing.Testing) -> None:
    job = await app.enqueue(fail)
    with pytest.raises(AssertionError, match="it is PENDING"):
        await app.result(job)
    await engine.advance(days=7)
    with pytest.raises(ExecutionFailed, match="ValueError: broken"):
        await app.result(job)


async def test_jobs_are_found_by_function_and_model(engine: testing.Testing) -> None:
    await app.enqueue(ship, Order(number=7))
    assert [job.payload for job in engine.assert_enqueued(ship, Order(number=7))] == [{"number": 7}]
    assert engine.assert_enqueued("ship", {"number": 7}, count=1) == engine.enqueued(ship)
    engine.refute_enqueued(ship, Order(number=8))
    engine.refute_enqueued(send_mail)
    await engine.run_due()
    assert [execution.result for execution in engine.executions(ship)] == [7]


async def test_a_failed_assertion_shows_the_jobs_that_exist(engine: testing.Testing) -> None:
    for number in range(25):
        await app.enqueue(ship, Order(number=number))
    with pytest.raises(AssertionError) as failed:
        engine.assert_enqueued(send_mail)
    assert str(failed.value).startswith("expected at least one job for 'send_mail', found 0; existing jobs: ['ship ")
    assert str(failed.value).endswith("'and 5 more']")


async def test_a_function_that_is_no_handler_is_refused(engine: testing.Testing) -> None:
    with pytest.raises(InvalidInput, match="is not a handler of this application"):
        engine.enqueued(test_a_failed_assertion_shows_the_jobs_that_exist)


async def test_an_application_under_test_opens_no_file(
    engine: testing.Testing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with app.embedded("shop.db") as running:
        assert running is app.engine
        await app.enqueue(ship, Order(number=1))
    engine.assert_enqueued(ship, count=1)
    assert list(tmp_path.iterdir()) == []


async def test_two_engines_of_one_application_are_refused(engine: testing.Testing) -> None:
    with pytest.raises(Conflict, match="already has an engine"):
        async with testing.engine(app):
            pass


async def test_a_file_is_opened_again_after_the_test(tmp_path: Path) -> None:
    async with testing.engine(app):
        pass
    async with app.embedded(tmp_path / "shop.db"):
        assert (tmp_path / "shop.db").exists()


async def test_a_handler_is_called_as_the_function_it_is() -> None:
    ctx = testing.context("send_mail", attempt=3, scheduled_at=NINE, progress={"page": 2}, job_name="nightly")
    assert ctx.progress == {"page": 2}
    assert await send_mail(ctx, Mail("bob")) == "bob, attempt 3"
    assert (ctx.handler, ctx.job_name, ctx.scheduled_at) == ("send_mail", "nightly", NINE)
    assert ctx.progress == {"opened": True}


def test_each_attempt_of_a_context_has_a_larger_token() -> None:
    first, second = testing.context(), testing.context(attempt=2)
    assert first.token < second.token
    assert first.execution_id != second.execution_id


def test_a_context_can_be_cancelled() -> None:
    ctx = testing.context()
    assert not ctx.cancelled
    testing.cancel(ctx, "TIMED_OUT")
    assert ctx.cancel_reason == "TIMED_OUT"
    with pytest.raises(Cancelled, match="TIMED_OUT"):
        ship(ctx, Order(number=1))


def test_the_kit_does_not_import_pytest() -> None:
    program = "import sys, noonday.testing; sys.exit('pytest' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


async def test_clock_passes_the_end_of_a_pause(engine: testing.Testing) -> None:
    job = await app.enqueue(send_mail, Mail("ada"), every=3600)
    running = app.running()
    assert isinstance(running, Running)
    await running.pause(job.job_id, until=engine.now + timedelta(minutes=90))
    assert await engine.advance(hours=1, minutes=29) == 0
    assert [one.state for one in engine.jobs()] == ["PAUSED"]
    assert await engine.advance(minutes=31) == 1
    assert [one.state for one in engine.jobs()] == ["ACTIVE"]
