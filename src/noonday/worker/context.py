"""What a handler is given."""

from collections.abc import Awaitable, Callable, Generator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from noonday.model.errors import Conflict, InvalidInput, NoondayError, PayloadTooLarge
from noonday.model.execution import Failure
from noonday.model.limits import PROGRESS_BYTES
from noonday.model.message import Dispatch, Token
from noonday.model.nesting import MOST_LEVELS, is_too_deep

if TYPE_CHECKING:
    from noonday.worker.completing import Completing

_LONGEST_SNOOZE_SEC = 366 * 86_400


class Snooze(NoondayError):
    """Raised by a handler: come back in so many seconds. It costs no attempt."""

    code = "snooze"

    def __init__(self, seconds: float) -> None:
        if not 0 <= seconds <= _LONGEST_SNOOZE_SEC:
            raise InvalidInput.of("", f"a snooze lasts from 0 to {_LONGEST_SNOOZE_SEC} s", seconds)
        super().__init__(f"come back in {seconds:g} s")
        self.seconds = seconds


class RetryLater(NoondayError):
    """Raised by a handler: this attempt has failed, and the next one makes no sense before so many seconds have passed.

    It waits for that long, or as long as the retry policy says if that is longer.
    """

    code = "retry-later"
    failure: Failure | None = None
    """What is kept of it, if that is not the exception itself."""
    counts = True
    """Whether it says that whoever was called is down, rather than that this call was wrong."""

    def __init__(self, message: str, seconds: float) -> None:
        if not 0 <= seconds <= _LONGEST_SNOOZE_SEC:
            raise InvalidInput.of("", f"to wait from 0 to {_LONGEST_SNOOZE_SEC} s is possible", seconds)
        super().__init__(message)
        self.seconds = seconds


class Cancelled(NoondayError):
    """Raised by `ctx.raise_if_cancelled()`."""

    code = "cancelled"


class _Done:
    """Something that may be awaited, or not."""

    def __await__(self) -> Generator[Any, None, None]:
        yield from ()


_DONE = _Done()


class Context:
    """The run a handler is in. Stable over attempts: `execution_id`. Growing with every run: `token`."""

    __slots__ = (
        "_account",
        "_cancel_reason",
        "_checked_ms",
        "_completed",
        "_completing",
        "_dispatch",
        "_encode",
        "_observed",
        "_progress",
        "_progress_limit",
        "_said",
        "_said_new",
        "_started_ms",
        "_token",
    )

    def __init__(
        self,
        dispatch: Dispatch,
        token: Token,
        progress: Any,
        *,
        completing: "Completing | None" = None,
        encode: Callable[[Any], bytes] | None = None,
        started_ms: int = 0,
        checked_ms: int = 0,
        progress_limit: int = PROGRESS_BYTES,
    ) -> None:
        self._dispatch = dispatch
        self._token = token
        self._progress = progress
        self._completing = completing
        self._encode = encode
        self._started_ms = started_ms
        self._checked_ms = checked_ms
        self._progress_limit = progress_limit
        self._completed = False
        self._said: Any = None
        self._said_new = False
        self._cancel_reason: str | None = None
        self._observed = False
        self._account: bytes | None = None

    @property
    def execution_id(self) -> str:
        """The same for every attempt of this occurrence: the key to be idempotent with."""
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
        """The fencing token: a later run of the same execution always has a larger one."""
        return int(self._token)

    @property
    def scheduled_at(self) -> datetime:
        """The nominal time of the occurrence, not the time it happened to start."""
        return datetime.fromtimestamp(self._dispatch.nominal_ms / 1000, UTC)

    @property
    def traceparent(self) -> str:
        """To hand on to whom the handler calls."""
        if self._dispatch.created_trace is not None and self._dispatch.trace is not None:
            return self._dispatch.trace
        name = self.execution_id.replace("-", "")
        return f"00-{name}-{name[-16:]}-00"

    @property
    def progress(self) -> Any:
        """What the last attempt said last; an empty dict if it said nothing."""
        return {} if self._progress is None else self._progress

    def heartbeat(self, progress: Any = None) -> _Done:
        """Say that the run is alive, and how far it is. The next attempt finds it in `progress`. May be awaited.

        Raises PayloadTooLarge if the progress, as JSON, is larger than `limits.progress_bytes`, and InvalidInput if it is nested
        too deeply; what was said before counts on.
        """
        if progress is not None:
            said = msgspec.json.encode(progress)
            if len(said) > self._progress_limit:
                raise PayloadTooLarge(
                    f"the progress has {len(said)} bytes, more than {self._progress_limit} (limits.progress_bytes): keep it "
                    "elsewhere, and give a reference to it"
                )
            if is_too_deep(said):
                raise InvalidInput(f"the progress is nested more than {MOST_LEVELS} levels deep")
            self._said = said
            self._progress = progress
        self._said_new = True
        return _DONE

    def complete(self, connection: Any, result: Any = None, *, schema: str | None = None) -> Awaitable[None]:
        """Record this execution as SUCCEEDED in the transaction that is open on `connection`: `await ctx.complete(conn)`.

        The end is committed with the handler's own writes, or rolled back with them. `connection` is one of asyncpg or an
        AsyncConnection of psycopg 3, to the database that the cluster keeps its executions in, `schema` in it (default:
        `postgres.schema`). Call it last and commit at once: until then whoever deals with this execution waits. Raises
        Conflict if the execution is not this run's any more, so that what the run has written is rolled back. What happens to
        the run afterwards changes nothing. The result is what is given here, not what the handler returns.
        """
        if self._completing is None:
            raise Conflict(
                "only a coroutine handler on a cluster can complete its execution in a transaction of its own"
            )
        return self._completing.complete(self, connection, result, schema)

    @property
    def cancelled(self) -> bool:
        """Whether this run was asked to end. A plain function has to look; a coroutine is cancelled."""
        if self._cancel_reason is not None:
            self._observed = True
        return self._cancel_reason is not None

    @property
    def cancel_reason(self) -> str | None:
        return self._cancel_reason

    def raise_if_cancelled(self) -> None:
        if self.cancelled:
            raise Cancelled(self._cancel_reason or "")

    @property
    def logger(self) -> Any:
        """A structured logger that names this run."""
        import structlog  # a third of a second that a spawned handler without logs need not spend

        return structlog.get_logger("noonday.handler").bind(
            execution_id=self.execution_id, job_id=self.job_id, handler=self.handler, attempt=self.attempt
        )
