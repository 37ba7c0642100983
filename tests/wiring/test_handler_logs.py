"""Nothing fails silently: failed attempts and the lines of handlers reach the log."""

import json
import logging
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from noonday import Context, Noonday
from noonday.model.errors import ExecutionFailed
from noonday.model.retry import RetryPolicy
from noonday.wiring.handler_logs import show_handler_logs
from noonday.wiring.settings.loading import load_settings
from noonday.worker.handler_log import PREFIX, HandlerLogger, logger_of
from tests.cli.serving import DEADLINE_SEC, Up, plain_environment
from tests.support.eventually import eventually

ONCE = RetryPolicy(max_attempts=1)
FIELDS = {"execution_id": "x-1", "job_id": "j-1", "handler": "nightly", "attempt": 2}


async def on_the_loop(ctx: Context) -> None:
    ctx.logger.info("reading", rows=3)
    raise ValueError("no such table")


def in_a_thread(ctx: Context) -> None:
    ctx.logger.info("reading", rows=3)
    raise ValueError("no such table")


def in_a_process(ctx: Context) -> None:
    ctx.logger.info("reading", rows=3)
    raise ValueError("no such table")


@pytest.mark.slow
@pytest.mark.parametrize("function", [on_the_loop, in_a_thread, in_a_process])
async def test_a_handler_logs_its_lines_and_its_failure_wherever_it_runs(
    function: object, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app, name = Noonday(), function.__name__  # type: ignore[attr-defined]
    app.handler(name, process=function is in_a_process, retry=ONCE)(function)  # type: ignore[arg-type]
    with caplog.at_level(logging.INFO, PREFIX):
        async with app.embedded(tmp_path / "n.db"):
            job = await app.enqueue(name)
            with pytest.raises(ExecutionFailed):
                await app.result(job)
            # The failure is logged after it is reported.
            records = await eventually(lambda: two_of(caplog.records, f"{PREFIX}.{name}"))
    line, failed = records
    assert (line.levelname, line.getMessage()) == ("INFO", "reading rows=3")
    assert failed.levelname == "ERROR"
    text = logging.Formatter().format(failed)
    assert f"attempt 1 of {name} failed: ValueError: no such table" in text
    assert f"in {name}" in text  # the frame of the handler
    for record in (line, failed):
        assert (record.__dict__["job_id"], record.__dict__["attempt"]) == (job.job_id, 1)


def two_of(records: list[logging.LogRecord], logger: str) -> list[logging.LogRecord]:
    found = [record for record in records if record.name == logger]
    return found if len(found) == 2 else []


PROGRAM = """
import asyncio, logging, sys
from noonday import Noonday, RetryPolicy
{configure}
app = Noonday()

@app.handler(retry=RetryPolicy(max_attempts=1))
async def nightly(ctx):
    ctx.logger.info("reading")
    raise ValueError("no such table")

async def main():
    async with app.embedded(sys.argv[1]):
        job = await app.enqueue(nightly)
        try:
            await app.result(job)
        except Exception as error:
            print(type(error).__name__)

asyncio.run(main())
"""


def stderr_of(tmp_path: Path, configure: str) -> str:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(configure=configure))
    ran = subprocess.run(
        [sys.executable, str(program), str(tmp_path / "n.db")], capture_output=True, text=True, timeout=120, check=True
    )
    assert ran.stdout == "ExecutionFailed\n"
    return ran.stderr


@pytest.mark.slow
def test_a_failure_is_shown_by_an_application_that_configures_no_logging(tmp_path: Path) -> None:
    shown = stderr_of(tmp_path, "")
    assert shown.count("attempt 1 of nightly failed: ValueError: no such table") == 1
    assert shown.count("Traceback (most recent call last)") == 1
    assert "reading" not in shown


@pytest.mark.slow
def test_an_application_that_configures_logging_shows_each_line_once_in_its_format(tmp_path: Path) -> None:
    shown = stderr_of(tmp_path, 'logging.basicConfig(level="INFO", format="mine %(execution_id)s %(message)s")')
    lines = [line for line in shown.splitlines() if line.startswith("mine ")]
    assert [line.split()[2] for line in lines] == ["reading", "attempt"]
    assert shown.count("ValueError: no such table") == 2  # the message, and the end of its traceback


@pytest.mark.slow
def test_up_shows_the_lines_of_handlers_and_their_failures(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(PROGRAM.partition("async def main")[0].format(configure=""))
    with Up(tmp_path, "shop:app", "--port", "0") as up:
        words = ["job", "create", "--handler", "nightly", "--name", "one", "--json"]
        for command in (words, ["execution", "wait", "one"]):
            subprocess.run(
                [sys.executable, "-m", "noonday", *command],
                cwd=tmp_path,
                env=plain_environment(**up.environ),
                capture_output=True,
                check=command is words,
                timeout=DEADLINE_SEC,
            )
        _, _, shown = up.end(signal.SIGINT)
    assert shown.count(" INFO     reading [nightly attempt 1 ") == 1
    assert shown.count("attempt 1 of nightly failed: ValueError: no such table") == 1


# What `noonday up` and `noonday worker` set up


@contextmanager
def no_logging() -> Iterator[None]:
    """Loggers of a process that configures none. Not a fixture, because pytest adds its handlers after the fixtures."""
    root, ours = logging.getLogger(), logging.getLogger(PREFIX)
    before = (root.handlers[:], ours.handlers[:], ours.level)
    root.handlers[:], ours.handlers[:] = [], []
    ours.setLevel(logging.NOTSET)
    try:
        yield
    finally:
        root.handlers[:], ours.handlers[:] = before[0], before[1]
        ours.setLevel(before[2])


def log_a_line() -> None:
    HandlerLogger(logger_of("nightly"), FIELDS).info("reading")


def test_lines_are_shown_from_info_on(capsys: pytest.CaptureFixture[str]) -> None:
    with no_logging():
        show_handler_logs(load_settings({}, {}, None))
        log_a_line()
        HandlerLogger(logger_of("nightly"), FIELDS).debug("details")
        shown = capsys.readouterr().err
        assert "INFO     reading [nightly attempt 2 x-1]\n" in shown
        assert "details" not in shown
        assert logging.getLogger().handlers == []


def test_lines_are_json_if_the_log_is(capsys: pytest.CaptureFixture[str]) -> None:
    with no_logging():
        show_handler_logs(load_settings({"log_format": "json"}, {}, None))
        log_a_line()
        line = json.loads(capsys.readouterr().err)
        assert line.pop("timestamp").endswith("Z")
        assert line == {"level": "info", "logger": "noonday.handler.nightly", "event": "reading", **FIELDS}


def test_an_application_that_has_configured_logging_keeps_it(capsys: pytest.CaptureFixture[str]) -> None:
    with no_logging():
        logging.getLogger().addHandler(logging.NullHandler())
        show_handler_logs(load_settings({}, {}, None))
        log_a_line()
        assert capsys.readouterr().err == ""
        assert logging.getLogger(PREFIX).level == logging.NOTSET


def test_an_application_that_configures_logging_later_shows_no_line_twice(capsys: pytest.CaptureFixture[str]) -> None:
    with no_logging():
        show_handler_logs(load_settings({}, {}, None))
        logging.getLogger().addHandler(logging.NullHandler())
        log_a_line()
        assert capsys.readouterr().err == ""
