"""A handler as the worker sees it: what to call, how, and within which bounds."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from noonday.model.message import HandlerInfo
from noonday.model.retry import RetryPolicy


class Mode(StrEnum):
    """Where a handler runs."""

    ASYNC = "ASYNC"
    """A coroutine function, on the handlers' loop."""
    THREAD = "THREAD"
    """A plain function, in a thread."""
    PROCESS = "PROCESS"
    """A plain function, in a spawned process that can be killed."""


@dataclass(frozen=True)
class Handler:
    """`call(ctx)` or `call(ctx, payload)`: it takes a payload if `decode` is given."""

    name: str
    pool: str
    call: Callable[..., Any]
    mode: Mode
    decode: Callable[[bytes], Any] | None = None
    """From the payload's JSON to what the function's annotation asks for. Raises what the user should read."""
    encode: Callable[[Any], bytes] | None = None
    """From what it returned to JSON. None: whatever it returns is dropped."""
    schema: dict[str, Any] | None = None
    """JSON schema of the payload."""
    timeout_sec: float | None = None
    retry_policy: RetryPolicy | None = None
    doc: str | None = None
    slack_sec: float = 0
    """How much longer than its timeout it may take, because it ends itself when that is over."""

    def info(self) -> HandlerInfo:
        return HandlerInfo(self.pool, self.name, self.schema, self.retry_policy, self.timeout_sec, self.doc)
