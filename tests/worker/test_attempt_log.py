"""The last log lines of an attempt, within a size."""

import logging

import pytest

from noonday.worker.attempt_log import NOTE_BYTES, AttemptLog, LogRetention
from noonday.worker.handler_log import HandlerLogger, logger_of
from tests.support.factories import NOW_MS

HEAD = "2030-01-01T00:00:00.000Z INFO     "


def log(limit_bytes: int = 10_000, level: int = logging.INFO) -> AttemptLog:
    made = LogRetention(limit_bytes, level, lambda: NOW_MS).new_log()
    assert made is not None
    return made


def lines_of(log: AttemptLog) -> list[str]:
    text = log.text()
    assert text is not None
    assert text.endswith(b"\n")
    return text.decode().splitlines()


def test_a_record_is_a_line_of_time_level_and_text() -> None:
    kept = log()
    kept.add(logging.INFO, "reading")
    kept.add(logging.ERROR, "failed\nTraceback")
    first, second, third = lines_of(kept)
    head = first.removesuffix("reading")
    assert len(head) == len(HEAD)
    assert head.endswith("Z INFO     ")
    assert second == head.replace("INFO     ", "ERROR    ") + "failed"
    assert third == "Traceback"


def test_an_attempt_that_logged_nothing_has_no_text() -> None:
    assert log().text() is None


def test_nothing_is_kept_if_the_limit_is_zero() -> None:
    assert LogRetention(0, logging.INFO, lambda: NOW_MS).new_log() is None


def test_the_oldest_lines_are_dropped_whole_and_counted() -> None:
    kept = log(limit_bytes=500)
    for number in range(100):
        kept.add(logging.INFO, f"row {number}")
    note, *lines = lines_of(kept)
    numbers = [int(line.rpartition(" ")[2]) for line in lines]
    assert numbers == list(range(100 - len(lines), 100))
    dropped = [f"{HEAD}row {number}\n" for number in range(100 - len(lines))]
    assert note == f"[{len(dropped)} earlier lines ({len(''.join(dropped))} bytes) were dropped]"
    text = kept.text()
    assert text is not None
    assert 500 - NOTE_BYTES - len(dropped[-1]) < len(text) <= 500


def test_a_line_that_is_too_long_keeps_its_beginning() -> None:
    kept = log(limit_bytes=300)
    kept.add(logging.INFO, "é" * 1_000)
    (line,) = lines_of(kept)
    assert line.endswith("éé [cut]")
    assert len(line.encode()) < 300 - NOTE_BYTES


def test_text_that_no_encoding_has_is_replaced() -> None:
    kept = log()
    kept.add(logging.INFO, "a\x00b\ud800c")
    assert lines_of(kept)[0].endswith("a\ufffdb?c")


@pytest.mark.parametrize("level", [logging.DEBUG, logging.ERROR])
def test_kept_lines_do_not_depend_on_what_the_application_logs(level: int, caplog: pytest.LogCaptureFixture) -> None:
    kept = log()
    caplog.set_level(level, "noonday.handler")
    logger = HandlerLogger(logger_of("nightly"), {}, kept=kept)
    logger.info("reading %d", 3, of="orders")
    logger.debug("details")
    logger.relay(logging.WARNING, "from a process")
    assert [line[len(HEAD) :] for line in lines_of(kept)] == ["reading 3 of=orders", "from a process"]
    assert logger.lowest_level == min(level, logging.INFO)
