"""The logger of a handler: where its records go, and what they say."""

import logging
from collections.abc import Iterator

import pytest

from noonday.worker.handler_log import HandlerLogger, logger_of, rendered

FIELDS = {"execution_id": "x-1", "job_id": "j-1", "handler": "nightly", "attempt": 2}


@pytest.fixture(autouse=True)
def every_level(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.DEBUG, "noonday.handler"):
        yield


def records_of(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """The records of handlers: asyncio may log what other tests left behind."""
    return [record for record in caplog.records if record.name.startswith("noonday.handler")]


def logger() -> HandlerLogger:
    return HandlerLogger(logger_of("nightly"), FIELDS)


def test_a_record_goes_to_the_logger_of_its_handler_with_the_ids_of_the_run(caplog: pytest.LogCaptureFixture) -> None:
    logger().info("copied %d of %s", 3, "rows")
    (record,) = records_of(caplog)
    assert (record.name, record.levelname, record.getMessage()) == (
        "noonday.handler.nightly",
        "INFO",
        "copied 3 of rows",
    )
    assert {name: getattr(record, name) for name in FIELDS} == FIELDS
    assert record.funcName == test_a_record_goes_to_the_logger_of_its_handler_with_the_ids_of_the_run.__name__


def test_fields_are_appended_to_the_message(caplog: pytest.LogCaptureFixture) -> None:
    logger().warning("sent %s", "mail", to=7, share="50%")
    logger().info("100% of", rows=3)
    assert [record.getMessage() for record in records_of(caplog)] == ["sent mail to=7 share=50%", "100% of rows=3"]


def test_a_level_that_the_application_does_not_log_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "noonday.handler")
    logger().info("quiet")
    logger().relay(logging.INFO, "quiet")
    assert records_of(caplog) == []


def test_an_exception_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise ValueError("no such table")
    except ValueError:
        logger().exception("copy failed")
    assert "copy failed" in caplog.text
    assert "ValueError: no such table" in caplog.text


def test_a_forwarding_logger_passes_on_the_whole_text(caplog: pytest.LogCaptureFixture) -> None:
    forwarded: list[tuple[int, str]] = []
    forwarding = HandlerLogger(logger_of("nightly"), FIELDS, lambda level, text: forwarded.append((level, text)))
    forwarding.info("row %d", 1, of=2)
    try:
        raise ValueError("no such table")
    except ValueError:
        forwarding.exception("copy failed")
    assert records_of(caplog) == []
    assert forwarded[0] == (logging.INFO, "row 1 of=2")
    level, text = forwarded[1]
    assert level == logging.ERROR
    assert text.startswith("copy failed\nTraceback")
    assert text.endswith("ValueError: no such table")


def test_a_relayed_record_is_no_format(caplog: pytest.LogCaptureFixture) -> None:
    logger().relay(logging.INFO, "50% done")
    assert [record.getMessage() for record in records_of(caplog)] == ["50% done"]


def test_arguments_that_do_not_fit_lose_no_record() -> None:
    assert rendered("%d rows", ("many",)).startswith("%d rows (arguments ('many',) do not fit")
    assert rendered("%(count)d rows", ({"count": 3},)) == "3 rows"
