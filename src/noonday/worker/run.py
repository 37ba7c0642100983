"""The run of one dispatch, from its delivery to its report."""

import asyncio
import math
import traceback
from dataclasses import dataclass
from typing import Any

import msgspec
from opentelemetry.trace import Span

from noonday.crypto.envelope import context_of
from noonday.crypto.keyring import Keyring
from noonday.model.claim import FENCED
from noonday.model.errors import BadKey, DoNotRetry, NoondayError
from noonday.model.execution import RETURN_REASONS, Failure, Outcome
from noonday.model.fence import is_out_of_time
from noonday.model.handler import Handler, Mode
from noonday.model.ids import WorkerId
from noonday.model.limits import FAILURE_CHARS, PROGRESS_BYTES, TRACEBACK_CHARS
from noonday.model.message import Dispatch, Report, Token
from noonday.model.nesting import MOST_LEVELS, is_too_deep
from noonday.runtime.tracing import sampled_traceparent
from noonday.worker.attempt_log import LogRetention
from noonday.worker.context import Cancelled, Context, RetryLater, Snooze
from noonday.worker.enqueueing import Enqueueing
from noonday.worker.identity import NOBODY, Identity

INTERRUPTED = "INTERRUPTED"
TIMED_OUT = "TIMED_OUT"
HEARTBEAT = "HEARTBEAT_TIMED_OUT"
DEFAULT_TIMEOUT_SEC = 3600.0
"""Timeout of a run if neither its job, its handler nor its pool sets one."""


class LeaseLapsed(NoondayError):
    """A remote worker that had started a run sent no heartbeat: the worker is lost, and so is the attempt."""

    code = "lease-lapsed"


@dataclass(eq=False, repr=False, slots=True)
class Run:
    """One dispatch in a worker: its claim, its deadlines, its outcome and its report."""

    dispatch: Dispatch
    token: Token | None
    """The fencing token. None until the run is claimed."""
    handler: Handler | None
    identity: Identity = NOBODY
    """The identity of the worker under which the run is reported."""
    claimed_at: float = math.nan
    """Time when the claim was requested, by the monotonic clock. NaN, which is never recent, until the run is claimed."""
    checked_ms: int = 0
    """Time when the pre-start check was requested."""
    context: Context | None = None
    task: asyncio.Task[None] | None = None
    timeout_sec: float = 0.0
    started_ms: int = 0
    """Time when the handler was entered, by the wall clock; 0 before that."""
    ended_ms: int = 0
    begun_at: float = 0.0
    """Time when the handler was entered, by the monotonic clock; 0 before that."""
    beat_at: float = 0.0
    """Time when the handler sent its last heartbeat, by the monotonic clock."""
    announced_ms: int = 0
    """Time when the start was reported before the handler was entered; 0 if it was not."""
    start_reported: bool = False
    is_acked: bool = False
    """True if the log has acknowledged the start or the end."""
    stop_requested: str | None = None
    """Reason why the control loop asked the run to stop. The loop that runs it may not know yet: see `stop_reason`."""
    stop_requested_at: float = 0.0
    stop_reason: str | None = None
    """Reason why the run was cancelled. Set on the loop that runs it."""
    stuck: bool = False
    """True if the handler was seen to block its loop."""
    outcome: Outcome = Outcome.SUCCEEDED
    failure: Failure | None = None
    error: BaseException | None = None
    """The exception of the failure, until the failure is logged."""
    is_abandoned: bool = False
    """True if a stand-in reports the run: its own end is dropped."""
    result: bytes | None = None
    snooze_ms: int = 0
    """Minimum wait of the next dispatch, in ms."""
    counts: bool = True
    """True if a failure counts against the called endpoint or the handler."""
    span: Span | None = None

    def open_payload(
        self,
        keyring: Keyring,
        progress_limit: int = PROGRESS_BYTES,
        log_retention: LogRetention | None = None,
        enqueueing: Enqueueing | None = None,
    ) -> tuple[Any, ...]:
        """Return the arguments of the handler: its context, and its payload if it takes one."""
        dispatch, handler = self.dispatch, self.handler
        assert handler is not None
        assert self.token is not None
        progress = None
        if dispatch.progress is not None:
            progress = decode_json(self._unseal(keyring, dispatch.progress))
        completing = self.identity.completing if handler.mode is Mode.ASYNC else None
        self.context = Context(
            dispatch,
            self.token,
            progress,
            progress_limit,
            completing,
            handler.encode,
            self.started_ms,
            self.checked_ms,
            log_retention,
            enqueueing,
        )
        if handler.decode is None:
            return (self.context,)
        text = b"null" if dispatch.payload is None else self._unseal(keyring, dispatch.payload)
        return (self.context, handler.decode(text))

    @property
    def mode(self) -> Mode:
        """Place where the handler runs. A run without a handler is rejected before it starts."""
        return self.handler.mode if self.handler is not None else Mode.ASYNC

    def enter(self, now_ms: int, now: float) -> None:
        """Note that the handler is entered. Its timeout and its heartbeat timeout begin now. Safe in any thread."""
        self.started_ms = now_ms
        self.beat_at = now
        self.begun_at = now  # last, because the control loop reads it to see whether the run has begun

    @property
    def is_completed(self) -> bool:
        """True if the handler has recorded its end itself. A revocation cannot change it any more."""
        return self.context is not None and self.context._completed

    def _unseal(self, keyring: Keyring, sealed: bytes) -> bytes:
        return keyring.open(sealed, context_of(self.dispatch.tenant, self.dispatch.job_id))

    def succeed(self, value: Any, result_limit: int) -> None:
        """Set the outcome of a handler that returned.

        A plain function that returned after it had read its cancellation counts as cancelled.
        """
        if self.stop_reason in (TIMED_OUT, HEARTBEAT):
            self._time_out()
        elif self.stop_reason is not None and self.context is not None and self.context._observed:
            self._cancel()
        elif self.handler is not None and self.handler.encode is not None and value is not None:
            self._keep_result(value, result_limit)

    def fail(self, error: BaseException) -> None:
        """Set the outcome of a handler that raised."""
        self.error = error
        if isinstance(error, Snooze):
            self.outcome, self.snooze_ms = Outcome.SNOOZED, max(0, round(error.seconds * 1000))
        elif self.stop_reason in (TIMED_OUT, HEARTBEAT):
            self._time_out()
        elif isinstance(error, asyncio.CancelledError | Cancelled) and self.stop_reason is not None:
            self._cancel()
        elif isinstance(error, LeaseLapsed):
            self.outcome, self.failure = Outcome.LOST, Failure("WorkerLost", error.detail)
        else:
            self.outcome = Outcome.FAILED
            self.failure = failure_of(error)
            if isinstance(error, RetryLater):
                self.failure = error.failure or self.failure
                self.counts = error.counts
                self.snooze_ms = round(error.seconds * 1000)

    def refuse(self, error: Exception) -> None:
        """Set the outcome of a run that fails with an error that a retry would repeat."""
        self.error, self.outcome, self.failure = error, Outcome.FAILED, failure_of(error, retryable=False)

    def _keep_result(self, value: Any, limit: int) -> None:
        assert self.handler is not None
        assert self.handler.encode is not None
        try:
            text = self.handler.encode(value)
        except Exception as error:
            self.refuse(error)
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
        if self.stop_reason == HEARTBEAT:
            limit = self.dispatch.heartbeat_timeout_sec
            self.failure = Failure("HeartbeatTimeout", f"no heartbeat for {limit:g} s")
        else:
            self.failure = Failure("Timeout", f"did not end within {self.timeout_sec:g} s")

    def _cancel(self) -> None:
        self.outcome = Outcome.INTERRUPTED if self.stop_reason == INTERRUPTED else Outcome.CANCELLED

    @property
    def reflects_endpoint_health(self) -> bool:
        """True if the outcome reflects the health of the called endpoint: a success, or a failure that counts against it."""
        failed_there = self.outcome in (Outcome.FAILED, Outcome.TIMED_OUT) and self.counts
        return self.started_ms > 0 and (self.outcome is Outcome.SUCCEEDED or failed_there)

    def stand_in(self, now_ms: int) -> "Run":
        """Return the run to report in place of this one, which ignores its cancellation.

        It is another object, because the thread of the abandoned run may still write to this one.
        """
        made = Run(self.dispatch, self.token, self.handler, self.identity)
        made.context, made.span, made.timeout_sec = self.context, self.span, self.timeout_sec
        made.started_ms, made.begun_at, made.announced_ms = self.started_ms, self.begun_at, self.announced_ms
        made.start_reported, made.is_acked = self.start_reported, self.is_acked
        made.stop_requested = made.stop_reason = self.stop_requested or INTERRUPTED
        made.ended_ms = now_ms
        if made.stop_reason in (TIMED_OUT, HEARTBEAT):
            made._time_out()
            assert made.failure is not None
            message = f"{made.failure.message}; it ignores its cancellation and was abandoned: it may still be running"
            made.failure = msgspec.structs.replace(made.failure, message=message)
        else:
            made._cancel()
        return made

    def is_too_old(self, now_ms: int) -> bool:
        """Return whether the dispatch was fired too long ago to start."""
        return is_out_of_time(self.dispatch.fired_ms, now_ms)

    def reject(self, reason: str) -> None:
        """Set the outcome of a run that must not start."""
        if reason in RETURN_REASONS:
            self.outcome = Outcome.REVOKED
        else:
            self.outcome = Outcome.INTERRUPTED if reason in (INTERRUPTED, FENCED) else Outcome.CANCELLED

    def defer(self, seconds: float, failure: Failure) -> None:
        """Return the run to the timeline for some seconds. It uses up no attempt."""
        self.outcome, self.snooze_ms, self.failure = Outcome.SNOOZED, round(seconds * 1000), failure

    def report(self, worker: WorkerId, keyring: Keyring) -> Report:
        """Return the report of the end, with result, progress, attempt record and log lines sealed."""
        context = context_of(self.dispatch.tenant, self.dispatch.job_id)
        progress = self.context._reported_progress if self.context else None
        attempt_record = self.context._attempt_record if self.context else None
        children, count = self._children()
        logs = self.context._logger.kept_text() if self.context and self.context._logger else None
        return Report(
            self.dispatch.execution_id,
            self.dispatch.number,
            worker,
            int(self.outcome),
            self.started_ms or self.announced_ms,
            self.ended_ms,
            self.failure,
            keyring.seal(self.result, context) if self.result is not None else None,
            keyring.seal(progress, context) if progress is not None else None,
            self.snooze_ms,
            self.dispatch.pool,
            self.dispatch.job_id,
            sampled_traceparent(self.span),
            self.started_ms - self.dispatch.due_ms if self.started_ms else 0,
            self.dispatch.tenant,
            len(self.dispatch.payload or b""),
            keyring.seal(attempt_record, context) if attempt_record is not None else None,
            self.dispatch.attempt if attempt_record is not None or logs is not None else 0,
            self.dispatch.endpoint if self.reflects_endpoint_health else None,
            keyring.seal(logs, context) if logs is not None else None,
            keyring.seal(children, context) if children is not None else None,
            count,
        )

    def _children(self) -> tuple[bytes | None, int]:
        """Return the jobs that the handler enqueued, and their number, if the attempt ended in a way that creates them."""
        if self.outcome not in (Outcome.SUCCEEDED, Outcome.SNOOZED) or self.context is None:
            return None, 0
        children = self.context._children
        return (children.encoded(), len(children)) if children else (None, 0)

    @property
    def may_have_run(self) -> bool:
        """True if the handler may have been entered before in this attempt, by a worker that died before it reported.

        If so, the start is reported before the handler is entered, so that another death uses up the attempt.
        """
        return self.dispatch.number > self.dispatch.attempt or (self.token is not None and self.token.taken_over)

    def start_report(self) -> Report:
        """Return the report of the start."""
        dispatch, at_ms = self.dispatch, self.started_ms or self.announced_ms
        worker = self.identity.id
        return Report(dispatch.execution_id, dispatch.number, worker, Outcome.STARTED, at_ms, at_ms, pool=dispatch.pool)


def timeout_of(run: Run) -> float:
    """Return the timeout of the job, else of the handler, else of the pool, else the default, plus the handler's slack."""
    of_handler, slack_sec = (run.handler.timeout_sec, run.handler.slack_sec) if run.handler else (None, 0.0)
    timeout_sec = run.dispatch.timeout_sec or of_handler or run.dispatch.pool_timeout_sec or DEFAULT_TIMEOUT_SEC
    return timeout_sec + slack_sec


def failure_of(error: BaseException, *, retryable: bool = True) -> Failure:
    """Return an exception as a failure that can be stored: of bounded length, and valid for UTF-8 and databases."""
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
        return f"(str() of the exception raised {type(worse).__name__})"


def clean(text: str, limit: int) -> str:
    """Return at most `limit` characters of a text, with NUL and lone surrogates replaced."""
    return text[:limit].replace("\x00", "\ufffd").encode("utf-8", "replace").decode()


def decode_json(text: bytes) -> Any:
    return msgspec.json.decode(text)
