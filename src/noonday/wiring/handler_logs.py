"""Log lines of handlers where the application does not configure logging.

The standard library shows warnings and errors by default, and only their message. `noonday up` and `noonday worker` show every
line from `worker.handler_log_level` on, with time, level and ids. The root logger is left alone. A line that the application's
own logging shows is not shown twice, whenever that is configured.
"""

import json
import logging
import sys
from datetime import UTC, datetime

from noonday.wiring.settings import Settings
from noonday.worker.handler_log import PREFIX

FIELDS = ("handler", "execution_id", "job_id", "attempt")


def show_handler_logs(settings: Settings) -> None:
    """Show the log lines of handlers on standard error, unless the imported application configures logging."""
    logger = logging.getLogger(PREFIX)
    if logger.hasHandlers():
        return
    shown = _HandlerOutput(sys.stderr)
    shown.setFormatter(_JsonFormatter() if settings.log_format == "json" else _TextFormatter())
    logger.addHandler(shown)
    if logger.level == logging.NOTSET:
        logger.setLevel(settings.worker.handler_log_level)


class _HandlerOutput(logging.StreamHandler):  # type: ignore[type-arg]
    """Shows a record only if the loggers above have no handler, because the application may configure logging later."""

    def filter(self, record: logging.LogRecord) -> bool:
        above = logging.getLogger(PREFIX).parent
        return (above is None or not above.hasHandlers()) and bool(super().filter(record))


class _TextFormatter(logging.Formatter):
    """One line for people: time, level, message, and what it is about. A traceback follows."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        head = f"{_time_of(record)} {record.levelname:<8} {record.message}"
        execution = getattr(record, "execution_id", None)
        if execution is None or execution in record.message:
            return head
        return f"{head} [{getattr(record, 'handler', '')} attempt {getattr(record, 'attempt', '')} {execution}]"


class _JsonFormatter(logging.Formatter):
    """One JSON object a line, in the form of the other log lines."""

    def format(self, record: logging.LogRecord) -> str:
        line = {"timestamp": _time_of(record), "level": record.levelname.lower(), "logger": record.name}
        line |= {name: getattr(record, name) for name in FIELDS if hasattr(record, name)}
        line["event"] = record.getMessage()
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def _time_of(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
