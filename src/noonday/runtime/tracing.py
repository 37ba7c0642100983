"""Traces that link the creation, dispatch, run and settling of an execution. Without an OpenTelemetry SDK they cost nothing.

A job may be due next week, so a run is not part of the trace that created its job. It has its own trace, whose id is the
execution's id, and links to the creation. This one trace contains dispatch, run and settling of every attempt: a dispatch is a
root span, the run is a child of its dispatch, and the settling is a child of its run.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import msgspec
from opentelemetry import context, trace
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, SpanKind, StatusCode, TraceFlags, Tracer

from noonday.model.execution import Outcome
from noonday.model.message import Dispatch, Report

next_trace_id: ContextVar[int | None] = ContextVar("next_trace_id", default=None)
"""Id for a trace that begins now. The id generator that `wiring/telemetry.py` installs uses it."""

_NOT_ERRORS = frozenset({Outcome.SUCCEEDED, Outcome.SNOOZED, Outcome.INTERRUPTED})


def trace_id_of(execution_id: str) -> str:
    """Return the id of an execution's trace, in hexadecimal."""
    return execution_id.replace("-", "")


def sampled_traceparent(span: Span | None) -> str | None:
    """Return the `traceparent` of a span; None if the span is not sampled."""
    return _traceparent(span) if span is not None and span.get_span_context().trace_flags.sampled else None


def current_traceparent() -> str | None:
    """Return the `traceparent` of the current span, for a request that is sent from here; None if it is not sampled."""
    return sampled_traceparent(trace.get_current_span())


def record_call(method: str, host: str, status: int | None) -> None:
    """Record an HTTP call as attributes of the current span."""
    span = trace.get_current_span()
    if span.is_recording():
        status_attribute = {} if status is None else {"http.response.status_code": status}
        span.set_attributes({"http.request.method": method, "server.address": host, **status_attribute})


class Tracing:
    """Spans of jobs and executions. `Tracing(None)` is off. `flush` sends the spans that are not sent yet."""

    def __init__(self, tracer: Tracer | None, flush: Callable[[], object] = lambda: None) -> None:
        self._tracer = tracer
        self.flush = flush

    @property
    def on(self) -> bool:
        return self._tracer is not None

    @contextmanager
    def creating(self, jobs: int, traceparent: str | None) -> Iterator[str | None]:
        """Span of a create call. Yields the `traceparent` that is stored with its jobs."""
        if self._tracer is None:
            yield traceparent
            return
        # If the caller sent no traceparent, the parent is the current span: a request, or the run of a handler.
        parent = _context_of(traceparent) if traceparent else None
        attributes = _attributes("create", "create", "jobs") | {"messaging.batch.message_count": jobs}
        span = self._tracer.start_span("create jobs", parent, SpanKind.PRODUCER, attributes)
        # The error's type only: its message may quote the payload.
        with trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
            try:
                yield _traceparent(span)
            except Exception as error:
                _set_error(span, type(error).__name__)
                raise

    def created(self, job_ids: Sequence[str]) -> None:
        """Record the created job, inside `creating`. Several jobs are not recorded: they have no single id to search for."""
        if self._tracer is not None and len(job_ids) == 1:
            trace.get_current_span().set_attribute("noonday.job.id", job_ids[0])

    @contextmanager
    def dispatching(self, dispatches: Sequence[Dispatch]) -> Iterator[Sequence[Dispatch]]:
        """Spans of dispatches that are being published. Yields the dispatches, each with the span that it carries to its
        worker."""
        if self._tracer is None:
            yield dispatches
            return
        spans = [self._dispatching(self._tracer, dispatch) for dispatch in dispatches]
        try:
            yield [_with_trace(dispatch, span) for dispatch, span in zip(dispatches, spans, strict=True)]
        except Exception as error:
            for span in spans:
                _set_error(span, type(error).__name__)
            raise
        finally:
            for span in spans:
                span.end()

    def _dispatching(self, tracer: Tracer, dispatch: Dispatch) -> Span:
        attributes = _attributes("dispatch", "send", dispatch.pool) | _dispatch_attributes(dispatch)
        with _trace_of(dispatch):
            return tracer.start_span(
                f"dispatch {dispatch.pool}", context.Context(), SpanKind.PRODUCER, attributes, _links_to(dispatch.trace)
            )

    def begin(self, dispatch: Dispatch) -> Span | None:
        """Start the span of a run."""
        if self._tracer is None:
            return None
        traced = dispatch.created_trace is not None
        created = dispatch.created_trace if traced else dispatch.trace
        parent = _context_of(dispatch.trace) if traced else context.Context()
        attributes = _attributes("process", "process", dispatch.pool) | _dispatch_attributes(dispatch)
        with _trace_of(dispatch):
            return self._tracer.start_span(
                f"process {dispatch.handler}", parent, SpanKind.CONSUMER, attributes, _links_to(created)
            )

    def activate(self, span: Span | None) -> None:
        """Make a span the current one in the calling context."""
        if span is not None:
            context.attach(trace.set_span_in_context(span))

    def end(self, span: Span | None, outcome: Outcome, error: str | None) -> None:
        """End the span of a run."""
        if span is None:
            return
        span.set_attribute("noonday.outcome", outcome.name)
        if outcome not in _NOT_ERRORS:
            _set_error(span, error or outcome.name)
        span.end()

    def settling(self, reports: Sequence[Report]) -> Sequence[tuple[Report, Span]]:
        """Start a span for the settling of each run that was traced."""
        if self._tracer is None:
            return ()
        return [(report, self._settling(self._tracer, report)) for report in reports if report.trace]

    def _settling(self, tracer: Tracer, report: Report) -> Span:
        attributes = _attributes("settle", "settle", report.pool) | {
            "messaging.message.id": report.execution_id,
            "noonday.job.id": report.job_id,
            "noonday.dispatch": report.dispatch,
            "noonday.outcome": Outcome(report.outcome).name,
        }
        return tracer.start_span(f"settle {report.pool}", _context_of(report.trace), SpanKind.CLIENT, attributes)

    def settled(self, spans: Sequence[tuple[Report, Span]], refused: Sequence[Report]) -> None:
        """End the spans of reports that the store has settled. Those that a fence refused are marked."""
        if not spans:
            return
        fenced = {(report.execution_id, report.dispatch, report.worker_id) for report in refused}
        for report, span in spans:
            if (report.execution_id, report.dispatch, report.worker_id) in fenced:
                span.set_attribute("noonday.refused", True)
            span.end()


@contextmanager
def _trace_of(dispatch: Dispatch) -> Iterator[None]:
    """Give a trace that begins inside this block the id of the execution."""
    token = next_trace_id.set(int(trace_id_of(dispatch.execution_id), 16))
    try:
        yield
    finally:
        next_trace_id.reset(token)


def _with_trace(dispatch: Dispatch, span: Span) -> Dispatch:
    return msgspec.structs.replace(dispatch, trace=_traceparent(span), created_trace=dispatch.trace or "")


def _set_error(span: Span, error: str) -> None:
    span.set_status(StatusCode.ERROR, error)
    span.set_attribute("error.type", error)


def _attributes(operation: str, kind: str, destination: str) -> dict[str, Any]:
    return {
        "messaging.system": "noonday",
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
        "messaging.destination.name": destination,
    }


def _dispatch_attributes(dispatch: Dispatch) -> dict[str, Any]:
    return {
        "messaging.message.id": dispatch.execution_id,
        "noonday.job.id": dispatch.job_id,
        "noonday.tenant": dispatch.tenant,
        "noonday.handler": dispatch.handler,
        "noonday.attempt": dispatch.attempt,
        "noonday.dispatch": dispatch.number,
    }


def _traceparent(span: Span) -> str:
    span_context = span.get_span_context()
    return f"00-{span_context.trace_id:032x}-{span_context.span_id:016x}-{span_context.trace_flags:02x}"


def _span_context(traceparent: str | None) -> SpanContext | None:
    parts = (traceparent or "").split("-")
    if len(parts) != 4 or len(parts[1]) != 32 or len(parts[2]) != 16:
        return None
    try:
        span_context = SpanContext(int(parts[1], 16), int(parts[2], 16), True, TraceFlags(int(parts[3], 16)))
    except ValueError:
        return None
    return span_context if span_context.is_valid else None


def _context_of(traceparent: str | None) -> context.Context:
    span_context = _span_context(traceparent)
    return (
        context.Context()
        if span_context is None
        else trace.set_span_in_context(NonRecordingSpan(span_context), context.Context())
    )


def _links_to(traceparent: str | None) -> list[Link]:
    span_context = _span_context(traceparent)
    return [] if span_context is None else [Link(span_context)]
