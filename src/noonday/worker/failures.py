"""What a worker says about failed attempts: a line with the traceback in the log of the handler."""

import logging
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from noonday.model.execution import Failure, Outcome
from noonday.worker.context import RetryLater, log_fields
from noonday.worker.handler_log import logger_of
from noonday.worker.run import Run

_Raised = tuple[type[BaseException], BaseException, TracebackType | None]
_WORKER = str(Path(__file__).parent)
FAILURES = {Outcome.FAILED: "failed", Outcome.TIMED_OUT: "timed out"}


class FailureLog:
    """Logs each failed attempt on the logger of its handler. Safe in any thread."""

    def __init__(self, level: int = logging.ERROR) -> None:
        self._level = level

    def note(self, run: Run) -> None:
        """Log a run that has ended, if its attempt failed. An exception of a logging handler of the application is dropped."""
        if run.failure is None or run.outcome not in FAILURES:
            return
        logger = logger_of(run.dispatch.handler)
        if not logger.isEnabledFor(self._level):
            return
        error = _raised_here(run)
        text = _text_of(run, run.failure, with_traceback=error is None)
        try:
            logger.handle(_record(logger, self._level, text, _from_the_handler_on(error), log_fields(run.dispatch)))
        except Exception:
            logging.getLogger(__name__).exception("failure not logged: a logging handler raised")


def _record(
    logger: logging.Logger, level: int, text: str, raised: _Raised | None, fields: Mapping[str, object]
) -> logging.LogRecord:
    """Return a record of the log. Its text can be written to a file in UTF-8, whatever the exception says."""
    record = logger.makeRecord(logger.name, level, __file__, 0, "%s", (text,), raised, extra=fields)
    if raised is not None:
        shown = "".join(traceback.format_exception(*raised)).rstrip("\n")
        encodable = shown.encode("utf-8", "replace").decode()
        if encodable != shown:
            record.exc_text = encodable
    return record


def _raised_here(run: Run) -> BaseException | None:
    """Return the exception of the handler if it was raised in this process and is what is recorded."""
    return None if isinstance(run.error, RetryLater) and run.error.failure is not None else run.error


def _from_the_handler_on(error: BaseException | None) -> _Raised | None:
    """Return an exception as `exc_info`, without the frames of the worker that called the handler."""
    if error is None:
        return None
    shown = error.__traceback__
    while shown is not None and shown.tb_next is not None and shown.tb_frame.f_code.co_filename.startswith(_WORKER):
        shown = shown.tb_next
    return type(error), error, shown


def _text_of(run: Run, failure: Failure, *, with_traceback: bool) -> str:
    dispatch = run.dispatch
    text = (
        f"attempt {dispatch.attempt} of {dispatch.handler} {FAILURES[run.outcome]}: {failure.type}: {failure.message} "
        f"(execution {dispatch.execution_id}; noonday execution show {dispatch.execution_id} --traceback)"
    )
    return f"{text}\n{failure.traceback.rstrip()}" if with_traceback and failure.traceback else text
