"""A handler as a registry keeps it and a worker runs it: the function, its mode, its codecs and its limits."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from noonday.model.message import HandlerInfo
from noonday.model.retry import RetryPolicy


class Mode(StrEnum):
    """Place where a handler runs: the event loop, a thread, a process, or a remote worker."""

    ASYNC = "ASYNC"
    """A coroutine function, on the handlers' loop."""
    THREAD = "THREAD"
    """A plain function, in a thread."""
    PROCESS = "PROCESS"
    """A plain function, in a spawned process that can be killed."""
    REMOTE = "REMOTE"
    """A program in any language, which takes its runs over HTTP."""


@dataclass(eq=False)
class FailureHooks:
    """Functions of an application that are called after failed attempts of its handlers."""

    on_failure: list[Callable[..., Any]] = field(default_factory=list)
    on_dead: list[Callable[..., Any]] = field(default_factory=list)
    included_by: list["FailureHooks"] = field(default_factory=list)
    """The hooks of applications that include this one. They are called for its handlers too."""

    def with_including(self) -> list["FailureHooks"]:
        """Return these hooks and those of all applications that include this one, each once."""
        found = [self]
        for hooks in found:
            found += [each for each in hooks.included_by if each not in found]
        return found


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
    hooks: FailureHooks | None = None

    def info(self) -> HandlerInfo:
        """Return the description that the worker announces on the log."""
        return HandlerInfo(self.pool, self.name, self.schema, self.retry_policy, self.timeout_sec, self.doc)
