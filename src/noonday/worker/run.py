"""One attempt on its way through the worker."""

import asyncio
import math
import traceback
from typing import Any

import msgspec
from opentelemetry.trace import Span

from noonday.crypto.envelope import context_of
from noonday.crypto.keyring import Keyring
from noonday.model.errors import BadKey, DoNotRetry
from noonday.model.execution import RETURN_REASONS, Failure, Outcome
from noonday.model.fence import is_out_of_time
from noonday.model.ids import WorkerId
from noonday.model.limits import FAILURE_CHARS, PROGRESS_BYTES, TRACEBACK_CHARS
from noonday.model.message import Dispatch, Report, Token
from noonday.model.nesting import MOST_LEVELS, is_too_deep
from noonday.ports.signals import FENCED
from noonday.runtime.tracing import trace_to_tell
from noonday.worker.context import Cancelled, Context, RetryLater, Snooze
from noonday.worker.handler import Handler, Mode
from noonday.worker.identity import NOBODY, Identity

INTERRUPTED = "INTERRUPTED"
TIMED_OUT = "TIMED_OUT"
HEARTBEAT = "HEARTBEAT_TIMED_OUT"


class Run:
    """From being taken to being reported."""

    __slots__ = (
        "announced_ms",
        "asked",
        "asked_at",
        "beat_at",
        "begun_at",
        "checked_ms",
        "claimed_at",
        "context",
        "counts",
        "dispatch",
        "ended_ms",
        "failure",
        "handler",
        "identity",
        "is_known",
        "outcome",
        "result",
        "snooze_ms",
        "span",
        "started_ms",
        "stop",
        "stuck",
        "task",
        "timeout_sec",
        "token",
        "told_start",
    )

    def __init__(
        self, dispatch: Dispatch, token: Token | None, handler: Handler | None, identity: Identity = NOBODY
    ) -> None:
        self.dispatch = dispatch
        self.token = token
        """None: it is not claimed yet."""
        self.handler = handler
        self.identity = identity
        """Under which it is reported."""
        self.claimed_at = math.nan
        """When its claim was asked for, by the monotonic clock. NaN, which is never recent, until it is claimed."""
        self.checked_ms = 0
        """When its pre-start check was asked for."""
        self.context: Context | None = None
        self.task: asyncio.Task[None] | None = None
        self.timeout_sec = 0.0
        self.started_ms = 0
        self.ended_ms = 0
        self.begun_at = 0.0
        self.beat_at = 0.0
        self.announced_ms = 0
        """When its start was reported ahead of it, if it was."""
        self.told_start = False
        self.is_known = False
        """Its start is on the log."""
        self.asked: str | None = None
        """Why it was asked to end. Set by the control loop, which may be ahead of the loop that the run is on."""
        self.asked_at = 0.0
        self.stop: str | None = None
        """Why it was told to end. Set on the loop that the run is on."""
        self.stuck = False
        self.outcome = Outcome.SUCCEEDED
        self.failure: Failure | None = None
        self.result: bytes | None = None
        self.snooze_ms = 0
        self.counts = True
        """Of a failure, whether it says something about whoever was called."""
        self.span: Span | None = None

    def open_payload(self, keyring: Keyring, progress_limit: int = PROGRESS_BYTES) -> tuple[Any, ...]:
        """The arguments of the handler: its context, and its payload if it takes one."""
        dispatch, handler = self.dispatch, self.handler
        assert handler is not None
        assert self.token is not None
        progress = None
        if dispatch.progress is not None:
            progress = decode_json(self._unseal(keyring, dispatch.progress))
        self.context = Context(
            dispatch,
            self.token,
            progress,
            completing=self.identity.completing if handler.mode is Mode.ASYNC else None,
            encode=handler.encode,
            started_ms=self.started_ms,
            checked_ms=self.checked_ms,
            progress_limit=progress_limit,
        )
        if handler.decode is None:
            return (self.context,)
        text = b"null" if dispatch.payload is None else self._unseal(keyring, dispatch.payload)
        return (self.context, handler.decode(text))

    @property
    def mode(self) -> Mode:
        """Where it runs. A run without a handler is turned away on the way to the loop."""
        return self.handler.mode if self.handler is not None else Mode.ASYNC

    def enter(self, now_ms: int, now: float) -> None:
        """Note that the handler is entered: its timeout and its heartbeat count from here. Safe in any thread."""
        self.started_ms = now_ms
        self.beat_at = now
        self.begun_at = now  # last, because the control loop tells by it whether the run has begun

    @property
    def is_completed(self) -> bool:
        """Whether the handler has recorded its end itself: no wish can change it any more."""
        return self.context is not None and self.context._completed

    def _unseal(self, keyring: Keyring, sealed: bytes) -> bytes:
        return keyring.open(sealed, context_of(self.dispatch.tenant, self.dispatch.job_id))

    def succeed(self, value: Any, result_limit: int) -> None:
        """The handler returned. A plain function that saw its cancellation and returned has been cancelled."""
        if self.stop in (TIMED_OUT, HEARTBEAT):
            self._time_out()
        elif self.stop is not None and self.context is not None and self.context._observed:
            self._cancel()
        elif self.handler is not None and self.handler.encode is not None and value is not None:
            self._keep(value, result_limit)

    def fail(self, error: BaseException) -> None:
        """The handler raised."""
        if isinstance(error, Snooze):
            self.outcome, self.snooze_ms = Outcome.SNOOZED, max(0, round(error.seconds * 1000))
        elif self.stop in (TIMED_OUT, HEARTBEAT):
            self._time_out()
        elif isinstance(error, asyncio.CancelledError | Cancelled) and self.stop is not None:
            self._cancel()
        else:
            self.outcome = Outcome.FAILED
            self.failure = failure_of(error)
            if isinstance(error, RetryLater):
                self.failure = error.failure or self.failure
                self.counts = error.counts
                self.snooze_ms = round(error.seconds * 1000)

    def _keep(self, value: Any, limit: int) -> None:
        assert self.handler is not None
        assert self.handler.encode is not None
        try:
            text = self.handler.encode(value)
        except Exception as error:
            self.outcome, self.failure = Outcome.FAILED, failure_of(error, retryable=False)
            return
        if is_too_deep(text):
            self.outcome = Outcome.FAILED
            message = f"the result is nested more than {MOST_LEVELS} levels deep"
            self.failure = Failure("ResultTooDeep", message, retryable=False)
        elif len(text) > limit:
            self.outcome = Outcome.FAILED
            message = f"the result has {len(text)} bytes, more than {limit}: return a reference to it instead"
            self.failure = Failure("ResultTooLarge", message, retryable=False)
        else:
            self.result = text

    def _time_out(self) -> None:
        self.outcome = Outcome.TIMED_OUT
        if self.stop == HEARTBEAT:
            limit = self.dispatch.heartbeat_timeout_sec
            self.failure = Failure("HeartbeatTimeout", f"no heartbeat for {limit:g} s")
        else:
            self.failure = Failure("Timeout", f"did not end within {self.timeout_sec:g} s")

    def _cancel(self) -> None:
        self.outcome = Outcome.INTERRUPTED if self.stop == INTERRUPTED else Outcome.CANCELLED

    @property
    def says_something(self) -> bool:
        """About whoever was called: it succeeded, or failed because of them."""
        failed_there = self.outcome in (Outcome.FAILED, Outcome.TIMED_OUT) and self.counts
        return self.started_ms > 0 and (self.outcome is Outcome.SUCCEEDED or failed_there)

    def stand_in(self, now_ms: int) -> "Run":
        """What is reported for a run that ignores its end: another value, because the run itself may still be written to, in
        whatever thread it is."""
        made = Run(self.dispatch, self.token, self.handler, self.identity)
        made.context, made.span, made.timeout_sec = self.context, self.span, self.timeout_sec
        made.started_ms, made.begun_at, made.announced_ms = self.started_ms, self.begun_at, self.announced_ms
        made.told_start, made.is_known = self.told_start, self.is_known
        made.asked = made.stop = self.asked or INTERRUPTED
        made.ended_ms = now_ms
        if made.stop in (TIMED_OUT, HEARTBEAT):
            made._time_out()
            assert made.failure is not None
            message = f"{made.failure.message}; it ignores its cancellation and was abandoned: it may still be running"
            made.failure = msgspec.structs.replace(made.failure, message=message)
        else:
            made._cancel()
        return made

    def is_too_old(self, now_ms: int) -> bool:
        return is_out_of_time(self.dispatch.fired_ms, now_ms)

    def turn_away(self, reason: str) -> None:
        """It was asked not to start."""
        if reason in RETURN_REASONS:
            self.outcome = Outcome.REVOKED
        else:
            self.outcome = Outcome.INTERRUPTED if reason in (INTERRUPTED, FENCED) else Outcome.CANCELLED

    def put_off(self, seconds: float, why: Failure) -> None:
        """It waits before it starts, and costs no attempt."""
        self.outcome, self.snooze_ms, self.failure = Outcome.SNOOZED, round(seconds * 1000), why

    def report(self, worker: WorkerId, keyring: Keyring) -> Report:
        context = context_of(self.dispatch.tenant, self.dispatch.job_id)
        said = self.context._said if self.context else None
        account = self.context._account if self.context else None
        return Report(
            self.dispatch.execution_id,
            self.dispatch.number,
            worker,
            int(self.outcome),
            self.started_ms or self.announced_ms,
            self.ended_ms,
            self.failure,
            keyring.seal(self.result, context) if self.result is not None else None,
            keyring.seal(said, context) if said is not None else None,
            self.snooze_ms,
            self.dispatch.pool,
            self.dispatch.job_id,
            trace_to_tell(self.span),
            self.started_ms - self.dispatch.due_ms if self.started_ms else 0,
            self.dispatch.tenant,
            len(self.dispatch.payload or b""),
            keyring.seal(account, context) if account is not None else None,
            self.dispatch.attempt if account is not None else 0,
            self.dispatch.endpoint if self.says_something else None,
        )

    @property
    def may_have_run(self) -> bool:
        """Whether an earlier dispatch or claim of this attempt may have entered the handler, and its worker died before it could
        report that: then the start is reported ahead, so that another death uses up the attempt."""
        return self.dispatch.number > self.dispatch.attempt or (self.token is not None and self.token.taken_over)

    def start_report(self) -> Report:
        dispatch, at_ms = self.dispatch, self.started_ms or self.announced_ms
        worker = self.identity.id
        return Report(dispatch.execution_id, dispatch.number, worker, Outcome.STARTED, at_ms, at_ms, pool=dispatch.pool)


def failure_of(error: BaseException, *, retryable: bool = True) -> Failure:
    """An error as people and stores can bear it: bounded, and without what UTF-8 or a database refuses."""
    lines = traceback.format_exception(type(error), error, error.__traceback__)
    return Failure(
        type=type(error).__name__,
        message=clean(_text_of(error), FAILURE_CHARS),
        traceback=clean("".join(lines)[-TRACEBACK_CHARS:], TRACEBACK_CHARS),
        retryable=retryable and not isinstance(error, DoNotRetry | BadKey),
    )


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as worse:
        return f"(its text cannot be made: {type(worse).__name__})"


def clean(text: str, limit: int) -> str:
    return text[:limit].replace("\x00", "\ufffd").encode("utf-8", "replace").decode()


def decode_json(text: bytes) -> Any:
    return msgspec.json.decode(text)
