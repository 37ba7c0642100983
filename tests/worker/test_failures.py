"""Failed attempts are logged with their traceback, wherever the handler runs."""

import logging
from collections.abc import Iterator

import pytest

from noonday.crypto.keyring import Keyring
from noonday.model.execution import Failure, Outcome
from noonday.worker.context import Cancelled, RetryLater, Snooze
from noonday.worker.failures import FailureLog
from noonday.worker.run import TIMED_OUT, Run
from tests.worker.process_handlers import divide_by_zero
from tests.worker.runs import new_run


def records_of(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """The records of handlers: asyncio may log what other tests left behind."""
    return [record for record in caplog.records if record.name.startswith("noonday.handler")]


@pytest.fixture(autouse=True)
def every_level(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.DEBUG, "noonday.handler"):
        yield


@pytest.fixture
def run() -> Run:
    return new_run(divide_by_zero, Keyring.generate())


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


def test_a_failure_is_one_record_with_the_exception_and_the_ids(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    error = raised(ValueError("no such table"))
    run.fail(error)
    FailureLog(logging.WARNING).note(run)
    (record,) = records_of(caplog)
    assert (record.name, record.levelno) == ("noonday.handler.divide_by_zero", logging.WARNING)
    assert record.exc_info is not None
    assert record.exc_info[1] is error
    assert (record.__dict__["execution_id"], record.__dict__["attempt"]) == ("execution-1", 3)
    assert "attempt 3 of divide_by_zero failed: ValueError: no such table" in record.getMessage()
    assert "noonday execution show execution-1 --traceback" in record.getMessage()


def test_the_traceback_of_another_process_is_part_of_the_message(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    error = RetryLater("remote", 0)
    error.failure = Failure("ValueError", "no such table", "Traceback of the child")
    run.fail(raised(error))
    FailureLog().note(run)
    (record,) = records_of(caplog)
    assert record.exc_info is None
    assert record.getMessage().endswith("\nTraceback of the child")


def test_a_timeout_is_logged(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    run.stop_reason, run.timeout_sec = TIMED_OUT, 5
    run.fail(raised(Cancelled(TIMED_OUT)))
    FailureLog().note(run)
    assert "attempt 3 of divide_by_zero timed out: Timeout: did not end within 5 s" in caplog.text


@pytest.mark.parametrize("end", ["success", "snooze", "cancel", "deferral"])
def test_an_end_that_is_no_failure_is_not_logged(run: Run, caplog: pytest.LogCaptureFixture, end: str) -> None:
    if end == "success":
        run.succeed(None, 100)
    elif end == "snooze":
        run.fail(raised(Snooze(5)))
    elif end == "cancel":
        run.stop_reason = "cancelled by ann"
        run.fail(raised(Cancelled("cancelled by ann")))
    else:
        run.defer(5, Failure("EndpointBusy", "wait"))
    FailureLog().note(run)
    assert records_of(caplog) == []
    assert run.outcome is not Outcome.FAILED


def test_a_logging_handler_that_raises_does_no_harm(run: Run) -> None:
    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise OSError("disk full")

    logger, broken = logging.getLogger("noonday.handler.divide_by_zero"), Broken()
    logger.addHandler(broken)
    try:
        run.fail(raised(ValueError("no such table")))
        FailureLog().note(run)
    finally:
        logger.removeHandler(broken)


def test_text_that_is_no_utf_8_is_logged_with_question_marks(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    run.fail(raised(ValueError("a lone \ud800 surrogate")))
    FailureLog().note(run)
    (record,) = records_of(caplog)
    assert "a lone ? surrogate" in record.getMessage()
    assert logging.Formatter().format(record).endswith("ValueError: a lone ? surrogate")
    caplog.text.encode("utf-8")
