"""The logger of a handler.

Its records go to the standard logger `noonday.handler.<name>`, with the ids of the run as fields. The application configures what
happens to them. A spawned process has no such configuration: it sends its records to the worker, which logs them.
"""

import logging
import sys
import traceback
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

from noonday.model.limits import TRACEBACK_CHARS
from noonday.worker.attempt_log import AttemptLog

PREFIX = "noonday.handler"
MAX_RECORD_CHARS = 64_000
"""Maximum length of a record that a spawned process sends to its worker, in characters."""
_OPTIONS = frozenset({"exc_info", "extra", "stack_info", "stacklevel"})
"""Keyword arguments of the standard logging methods. Any other names a field."""


def logger_of(handler: str) -> logging.Logger:
    """Return the standard logger of a handler."""
    return logging.getLogger(f"{PREFIX}.{handler}")


class HandlerLogger(logging.LoggerAdapter[logging.Logger]):
    """Logs for one attempt. Every record has `execution_id`, `job_id`, `handler` and `attempt` as attributes.

    Besides the arguments of the standard methods, any keyword argument is appended to the message: `logger.info("sent", to=7)`
    logs `sent to=7`. Safe in any thread.
    """

    def __init__(
        self,
        logger: logging.Logger,
        fields: Mapping[str, object],
        forward: Callable[[int, str], None] | None = None,
        kept: AttemptLog | None = None,
    ) -> None:
        """`forward`, if given, takes the level and the text of each record in place of the standard logger.

        `kept` also gets the records, whether or not the application logs their level.
        """
        super().__init__(logger, fields)
        self._forward = forward
        self._kept = kept

    def log(self, level: int, msg: object, *args: Any, **kwargs: Any) -> None:
        text, options = self.process(msg, kwargs)
        if args and text is not msg:
            # Fields are no part of the format: they may contain a percent sign.
            text, args = rendered(msg, args) + text[len(str(msg)) :], ()
        if self._kept is not None and level >= self._kept.level:
            self._kept.add(level, rendered(text, args, options.get("exc_info")))
        if self._forward is not None:
            self._forward(level, rendered(text, args, options.get("exc_info")))
        elif self.logger.isEnabledFor(level):
            options["stacklevel"] = options.get("stacklevel", 1) + 1
            self.logger.log(level, text, *args, **options)

    @property
    def lowest_level(self) -> int:
        """The lowest level of records that are used."""
        level = self.logger.getEffectiveLevel()
        return level if self._kept is None else min(level, self._kept.level)

    def kept_text(self) -> bytes | None:
        """Return the lines to keep with the execution, or None if there are none."""
        return None if self._kept is None else self._kept.text()

    def keep(self, level: int, text: str) -> None:
        """Keep a record with the execution, and log it nowhere else."""
        if self._kept is not None and level >= self._kept.level:
            self._kept.add(level, text)

    def relay(self, level: int, text: str) -> None:
        """Log the text of a record that was made in another process."""
        self.keep(level, text)
        if self.logger.isEnabledFor(level):
            self.logger.log(level, "%s", text, extra=self.extra)

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        options = {name: value for name, value in kwargs.items() if name in _OPTIONS}
        fields = [f" {name}={_text_of(value)}" for name, value in kwargs.items() if name not in _OPTIONS]
        options["extra"] = {**(options.get("extra") or {}), **(self.extra or {})}
        return (f"{msg}{''.join(fields)}" if fields else msg), options


def rendered(message: object, args: tuple[Any, ...], exc_info: Any = None) -> str:
    """Return the text of a record: its message with the arguments filled in, and the traceback of its exception."""
    text = str(message)
    if args:
        try:
            text %= args[0] if len(args) == 1 and isinstance(args[0], Mapping) and args[0] else args
        except Exception as error:
            text = f"{text} (arguments {args!r} do not fit: {error})"
    raised = _exception_of(exc_info)
    if raised is None:
        return text
    lines = "".join(traceback.format_exception(raised)).rstrip("\n")
    return f"{text}\n{lines[-TRACEBACK_CHARS:]}"


def _exception_of(exc_info: Any) -> BaseException | None:
    """Return the exception that `exc_info` means: itself, the second of three values, or the one that is handled now."""
    if isinstance(exc_info, BaseException):
        return exc_info
    if isinstance(exc_info, tuple):
        error = exc_info[1]
        return error if isinstance(error, BaseException) else None
    return sys.exc_info()[1] if exc_info else None


def _text_of(value: object) -> str:
    try:
        return str(value)
    except Exception as error:
        return f"(str() raised {type(error).__name__})"
