"""The context that a handler is called with, and the exceptions it may raise."""

import threading
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

import msgspec

from noonday.model.errors import Conflict, InvalidInput, NoondayError, PayloadTooLarge
from noonday.model.execution import Failure
from noonday.model.job_fields import EnqueueFields
from noonday.model.limits import PROGRESS_BYTES
from noonday.model.message import Dispatch, Token
from noonday.model.nesting import MOST_LEVELS, is_too_deep
from noonday.worker.attempt_log import LogRetention
from noonday.worker.enqueueing import Children, EnqueuedChild, Enqueueing
from noonday.worker.handler_log import HandlerLogger, logger_of

if TYPE_CHECKING:
    from noonday.worker.completing import Completer

P = TypeVar("P")
_LONGEST_SNOOZE_SEC = 366 * 86_400


class Snooze(NoondayError):
    """Raised by a handler to be run again after some seconds. This uses up no attempt."""

    code = "snooze"

    def __init__(self, seconds: float) -> None:
        if not 0 <= seconds <= _LONGEST_SNOOZE_SEC:
            raise InvalidInput.of("", f"a snooze must last from 0 to {_LONGEST_SNOOZE_SEC} s", seconds)
        super().__init__(f"run again in {seconds:g} s")
        self.seconds = seconds


class RetryLater(NoondayError):
    """Raised by a handler whose attempt has failed and must not be retried before some seconds have passed.

    The retry waits for that long, or for the delay of the retry policy if that is longer.
    """

    code = "retry-later"
    failure: Failure | None = None
    """The failure to record. None: it is made from the exception."""
    counts = True
    """True if the failure counts against the called endpoint. False if only this call was wrong."""

    def __init__(self, message: str, seconds: float) -> None:
        if not 0 <= seconds <= _LONGEST_SNOOZE_SEC:
            raise InvalidInput.of("", f"a retry must wait from 0 to {_LONGEST_SNOOZE_SEC} s", seconds)
        super().__init__(message)
        self.seconds = seconds


class Cancelled(NoondayError):
    """Raised by `ctx.raise_if_cancelled()` in a run that was asked to end."""

    code = "cancelled"


class _Done:
    """An awaitable that is complete. It need not be awaited."""

    def __await__(self) -> Generator[Any, None, None]:
        yield from ()


_DONE = _Done()
_MAKING = threading.Lock()
"""Threads of one handler share its logger, which has the lines that are kept, and its children."""


@dataclass(eq=False, repr=False, slots=True)
class Context:
    """The run that a handler is in.

    `execution_id` is the same for all attempts. `token` is larger in every later run.
    """

    _dispatch: Dispatch
    _token: Token
    _progress: Any
    _progress_limit: int = PROGRESS_BYTES
    _completing: "Completer | None" = None
    _encode: Callable[[Any], bytes] | None = None
    _started_ms: int = 0
    _checked_ms: int = 0
    _log_retention: LogRetention | None = None
    _enqueueing: Enqueueing | None = None
    _children: Children | None = None
    """Made by the first `enqueue`: most runs enqueue nothing."""
    _why_closed: str | None = None
    """Why nothing more may be enqueued."""
    _completed: bool = False
    _reported_progress: Any = None
    _has_new_heartbeat: bool = False
    _cancel_reason: str | None = None
    _observed: bool = False
    _attempt_record: bytes | None = None
    _logger: HandlerLogger | None = None

    @property
    def execution_id(self) -> str:
        """The id of the execution, the same for every attempt. Use it as an idempotency key."""
        return self._dispatch.execution_id

    @property
    def job_id(self) -> str:
        return self._dispatch.job_id

    @property
    def job_name(self) -> str | None:
        return self._dispatch.name

    @property
    def tenant(self) -> str:
        return self._dispatch.tenant

    @property
    def pool(self) -> str:
        return self._dispatch.pool

    @property
    def handler(self) -> str:
        return self._dispatch.handler

    @property
    def attempt(self) -> int:
        """1 for the first attempt."""
        return self._dispatch.attempt

    @property
    def token(self) -> int:
        """The fencing token. A later run of the same execution always has a larger one."""
        return int(self._token)

    @property
    def scheduled_at(self) -> datetime:
        """The nominal time of the occurrence, not the time it happened to start."""
        return datetime.fromtimestamp(self._dispatch.nominal_ms / 1000, UTC)

    @property
    def traceparent(self) -> str:
        """The W3C trace context, to pass on to services that the handler calls."""
        if self._dispatch.created_trace is not None and self._dispatch.trace is not None:
            return self._dispatch.trace
        name = self.execution_id.replace("-", "")
        return f"00-{name}-{name[-16:]}-00"

    @property
    def progress(self) -> Any:
        """The latest progress, of this attempt or an earlier one. An empty dict if there is none."""
        return {} if self._progress is None else self._progress

    def heartbeat(self, progress: Any = None) -> _Done:
        """Report that the run is alive, and its progress. The next attempt finds it in `progress`. May be awaited.

        Raises PayloadTooLarge if the progress, as JSON, is larger than `limits.progress_bytes`, and InvalidInput if it is nested
        too deeply. The previous progress is kept then.
        """
        if progress is not None:
            encoded = msgspec.json.encode(progress)
            if len(encoded) > self._progress_limit:
                raise PayloadTooLarge(
                    f"the progress has {len(encoded)} bytes, more than {self._progress_limit} (limits.progress_bytes): store it "
                    "elsewhere, and report a reference to it"
                )
            if is_too_deep(encoded):
                raise InvalidInput(
                    f"the progress is nested more than {MOST_LEVELS} levels deep: report a flatter value"
                )
            self._reported_progress = encoded
            self._progress = progress
        self._has_new_heartbeat = True
        return _DONE

    @overload
    def enqueue(
        self, handler: Callable[["Context"], Any], payload: None = None, **arguments: Unpack[EnqueueFields]
    ) -> EnqueuedChild: ...

    @overload
    def enqueue(
        self, handler: Callable[["Context", P], Any], payload: P, **arguments: Unpack[EnqueueFields]
    ) -> EnqueuedChild: ...

    @overload
    def enqueue(self, handler: str, payload: Any = None, **arguments: Unpack[EnqueueFields]) -> EnqueuedChild: ...

    def enqueue(
        self, handler: str | Callable[..., Any], payload: Any = None, **arguments: Unpack[EnqueueFields]
    ) -> EnqueuedChild:
        """Create a job once this attempt has succeeded or snoozed, with the arguments of `app.enqueue`. May be awaited.

        If the attempt ends in any other way, the job is not created: the next attempt enqueues it. The job belongs to the tenant
        of this execution, and starts after this attempt, so the handler cannot wait for it. Within an execution, a `name` means
        one job: enqueued again under it, also after a snooze, it is the same job.

        Raises InvalidInput for an invalid job, or more than `limits.enqueued_jobs`, PayloadTooLarge for more than
        `limits.enqueued_bytes`, and Conflict for a second job with the same name.
        """
        return self._open_children().enqueue(handler, payload, arguments)

    def _open_children(self) -> Children:
        if self._enqueueing is None:
            raise Conflict("ctx.enqueue works only in a handler that a worker runs; in a test: noonday.testing.context")
        with _MAKING:
            if self._children is None:
                self._children = Children(self._dispatch, self._enqueueing)
        if self._why_closed is not None:
            self._children.close(self._why_closed)
        return self._children

    def _close_children(self, why: str) -> None:
        """Let nothing more be enqueued. Whichever thread comes second, this one or one that enqueues, closes the children."""
        self._why_closed = why
        if self._children is not None:
            self._children.close(why)

    def complete(self, connection: Any, result: Any = None, *, schema: str | None = None) -> Awaitable[None]:
        """Record this execution as SUCCEEDED in the transaction that is open on `connection`: `await ctx.complete(conn)`.

        The end is committed with the handler's own writes, or rolled back with them. `connection` is a connection of asyncpg or
        an AsyncConnection of psycopg 3, to the database in which the cluster keeps its executions. `schema` names the schema
        there (default: `postgres.schema`). Call it last and commit at once: until then, everything else that changes this
        execution waits. Raises Conflict if the execution does not belong to this run any more, so that the run's writes are
        rolled back. The outcome of the run afterwards changes nothing. The result is the one given here, not the handler's return
        value.
        """
        if self._completing is None:
            raise Conflict(
                "ctx.complete works only in a coroutine handler on a cluster: return the result from the handler instead"
            )
        if self._children:
            raise Conflict(
                "ctx.complete cannot create the jobs of ctx.enqueue: create them in the same transaction, with "
                "app.enqueue(..., connection=connection)"
            )
        return self._completing.complete(self, connection, result, schema)

    @property
    def cancelled(self) -> bool:
        """True if this run was asked to end. A plain function has to check this; a coroutine is cancelled."""
        if self._cancel_reason is not None:
            self._observed = True
        return self._cancel_reason is not None

    @property
    def cancel_reason(self) -> str | None:
        """Reason why this run was asked to end, for example `TIMED_OUT`; None if it was not."""
        return self._cancel_reason

    def raise_if_cancelled(self) -> None:
        """Raise Cancelled if this run was asked to end."""
        if self.cancelled:
            raise Cancelled(self._cancel_reason or "")

    @property
    def logger(self) -> HandlerLogger:
        """A standard logger, `noonday.handler.<name>`, whose records have this run's ids as attributes.

        The last lines are kept with the execution: `noonday execution logs`.
        Keyword arguments are appended to the message: `ctx.logger.info("sent", to=7)`.
        """
        if self._logger is None:
            with _MAKING:
                self._logger = self._logger or self._new_logger()
        return self._logger

    def _new_logger(self) -> HandlerLogger:
        kept = None if self._log_retention is None else self._log_retention.new_log()
        return HandlerLogger(logger_of(self.handler), log_fields(self._dispatch), kept=kept)


@dataclass(frozen=True)
class FailedAttempt:
    """A failed attempt, as hooks get it."""

    outcome: str
    """FAILED or TIMED_OUT."""
    error: Failure
    """The error as it is stored with the execution."""
    exception: BaseException | None
    """The exception that the handler raised; None if it ran in another process or did not end."""
    is_last: bool
    """True if no attempt follows: the execution is DEAD once the attempt is recorded."""


def log_fields(dispatch: Dispatch) -> dict[str, object]:
    """Return the fields of each log record about a run."""
    return {
        "execution_id": dispatch.execution_id,
        "job_id": dispatch.job_id,
        "handler": dispatch.handler,
        "attempt": dispatch.attempt,
    }
