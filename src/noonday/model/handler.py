"""A handler as a registry keeps it and a worker runs it: the function, its mode, its codecs and its limits."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from noonday.model.message import HandlerInfo
from noonday.model.retry import RetryPolicy


class Mode(StrEnum):
    """Place where a handler runs: the event loop, a thread or a process."""

    ASYNC = "ASYNC"
    """A coroutine function, on the handlers' loop."""
    THREAD = "THREAD"
    """A plain function, in a thread."""
    PROCESS = "PROCESS"
    """A plain function, in a spawned process that can be killed."""


@dataclass(frozen=True)
class Handler:
    """A registered handler. It is called with `(ctx, payload)` if `decode` is given, else with `(ctx)`."""

    name: str
    pool: str
    call: Callable[..., Any]
    mode: Mode
    decode: Callable[[bytes], Any] | None = None
    """Decodes the payload's JSON to the type that the function's annotation names. Its exceptions are shown to the user."""
    encode: Callable[[Any], bytes] | None = None
    """Encodes the return value as JSON. None: return values are dropped."""
    schema: dict[str, Any] | None = None
    """JSON schema of the payload."""
    timeout_sec: float | None = None
    retry_policy: RetryPolicy | None = None
    doc: str | None = None
    slack_sec: float = 0
    """Seconds that the worker waits beyond the timeout, because the handler enforces its timeout itself."""

    def info(self) -> HandlerInfo:
        """Return the description that the worker announces on the log."""
        return HandlerInfo(self.pool, self.name, self.schema, self.retry_policy, self.timeout_sec, self.doc)
