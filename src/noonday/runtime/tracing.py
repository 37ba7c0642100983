"""Traces: creation, dispatch, run and settling of an execution, linked. Without an OpenTelemetry SDK all of it costs nothing.

Work may be due next week, so a run is not part of the trace that created its job: it has a trace of its own, whose id is the
execution's id, and links to the creation. Dispatch, run and settling of every attempt are in that one trace: a dispatch begins
at its root, the run is below its dispatch, and the settling below the run that it settles.
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
"""The id that a trace begun now should have; heeded by the generator that `wiring/telemetry.py` installs."""

_FINE = frozenset({Outcome.SUCCEEDED, Outcome.SNOOZED, Outcome.INTERRUPTED})


def trace_id_of(execution_id: str) -> str:
    return execution_id.replace("-", "")


def trace_to_tell(span: Span | None) -> str | None:
    """The `traceparent` of a span, if it is kept."""
    return _traceparent(span) if span is not None and span.get_span_context().trace_flags.sampled else None


def present_traceparent() -> str | None:
    """Of the span that goes on where this is called, if it is kept: for whoever is called from here."""
    return trace_to_tell(trace.get_current_span())


def tell_of_call(method: str, host: str, status: int | None) -> None:
    """Of the call that the span which goes on here was for."""
    span = trace.get_current_span()
    if span.is_recording():
        answered = {} if status is None else {"http.response.status_code": status}
        span.set_attributes({"http.request.method": method, "server.address": host, **answered})


class Tracing:
    """`Tracing(None)` is off. `flush` sends what has not been sent."""

    def __init__(self, tracer: Tracer | None, flush: Callable[[], object] = lambda: None) -> None:
        self._tracer = tracer
        self.flush = flush

    @property
    def on(self) -> bool:
        return self._tracer is not None

    @contextmanager
    def creating(self, jobs: int, traceparent: str | None) -> Iterator[str | None]:
        """The span of a create call. Yields the `traceparent` that its jobs remember."""
        if self._tracer is None:
            yield traceparent
            return
        # Without a word from the caller, whatever is going on where we are called: a request, or the run of a handler.
        parent = _context_of(traceparent) if traceparent else None
        about = _attributes("create", "create", "jobs") | {"messaging.batch.message_count": jobs}
        span = self._tracer.start_span("create jobs", parent, SpanKind.PRODUCER, about)
        # Not by its message: that may quote the payload.
        with trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
            try:
                yield _traceparent(span)
            except Exception as error:
                _blame(span, type(error).__name__)
                raise

    def created(self, job_ids: Sequence[str]) -> None:
        """Said inside of `creating`: what became of it. Only one job has a name that can be looked for."""
        if self._tracer is not None and len(job_ids) == 1:
            trace.get_current_span().set_attribute("noonday.job.id", job_ids[0])

    @contextmanager
    def dispatching(self, dispatches: Sequence[Dispatch]) -> Iterator[Sequence[Dispatch]]:
        """While they are published, each has a span, which it carries to its worker."""
        if self._tracer is None:
            yield dispatches
            return
        spans = [self._dispatching(self._tracer, dispatch) for dispatch in dispatches]
        try:
            yield [_carrying(dispatch, span) for dispatch, span in zip(dispatches, spans, strict=True)]
        except Exception as error:
            for span in spans:
                _blame(span, type(error).__name__)
            raise
        finally:
            for span in spans:
                span.end()

    def _dispatching(self, tracer: Tracer, dispatch: Dispatch) -> Span:
        about = _attributes("dispatch", "send", dispatch.pool) | _about(dispatch)
        with _trace_of(dispatch):
            return tracer.start_span(
                f"dispatch {dispatch.pool}", context.Context(), SpanKind.PRODUCER, about, _links(dispatch.trace)
            )

    def begin(self, dispatch: Dispatch) -> Span | None:
        """The span of a run."""
        if self._tracer is None:
            return None
        traced = dispatch.created_trace is not None
        created = dispatch.created_trace if traced else dispatch.trace
        parent = _context_of(dispatch.trace) if traced else context.Context()
        about = _attributes("process", "process", dispatch.pool) | _about(dispatch)
        with _trace_of(dispatch):
            return self._tracer.start_span(
                f"process {dispatch.handler}", parent, SpanKind.CONSUMER, about, _links(created)
            )

    def activate(self, span: Span | None) -> None:
        """Make the span the current one, in the context this is called in."""
        if span is not None:
            context.attach(trace.set_span_in_context(span))

    def end(self, span: Span | None, outcome: Outcome, error: str | None) -> None:
        if span is None:
            return
        span.set_attribute("noonday.outcome", outcome.name)
        if outcome not in _FINE:
            _blame(span, error or outcome.name)
        span.end()

    def settling(self, reports: Sequence[Report]) -> Sequence[tuple[Report, Span]]:
        """Begin a span for the end of each run that was traced."""
        if self._tracer is None:
            return ()
        return [(report, self._settling(self._tracer, report)) for report in reports if report.trace]

    def _settling(self, tracer: Tracer, report: Report) -> Span:
        about = _attributes("settle", "settle", report.pool) | {
            "messaging.message.id": report.execution_id,
            "noonday.job.id": report.job_id,
            "noonday.dispatch": report.dispatch,
            "noonday.outcome": Outcome(report.outcome).name,
        }
        return tracer.start_span(f"settle {report.pool}", _context_of(report.trace), SpanKind.CLIENT, about)

    def settled(self, spans: Sequence[tuple[Report, Span]], refused: Sequence[Report]) -> None:
        """The store has them, but for those that a fence refused."""
        if not spans:
            return
        fenced = {(report.execution_id, report.dispatch, report.worker_id) for report in refused}
        for report, span in spans:
            if (report.execution_id, report.dispatch, report.worker_id) in fenced:
                span.set_attribute("noonday.refused", True)
            span.end()


@contextmanager
def _trace_of(dispatch: Dispatch) -> Iterator[None]:
    """A trace that is begun in here is the execution's."""
    token = next_trace_id.set(int(trace_id_of(dispatch.execution_id), 16))
    try:
        yield
    finally:
        next_trace_id.reset(token)


def _carrying(dispatch: Dispatch, span: Span) -> Dispatch:
    return msgspec.structs.replace(dispatch, trace=_traceparent(span), created_trace=dispatch.trace or "")


def _blame(span: Span, error: str) -> None:
    span.set_status(StatusCode.ERROR, error)
    span.set_attribute("error.type", error)


def _attributes(operation: str, kind: str, destination: str) -> dict[str, Any]:
    return {
        "messaging.system": "noonday",
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
        "messaging.destination.name": destination,
    }


def _about(dispatch: Dispatch) -> dict[str, Any]:
    return {
        "messaging.message.id": dispatch.execution_id,
        "noonday.job.id": dispatch.job_id,
        "noonday.tenant": dispatch.tenant,
        "noonday.handler": dispatch.handler,
        "noonday.attempt": dispatch.attempt,
        "noonday.dispatch": dispatch.number,
    }


def _traceparent(span: Span) -> str:
    about = span.get_span_context()
    return f"00-{about.trace_id:032x}-{about.span_id:016x}-{about.trace_flags:02x}"


def _span_context(traceparent: str | None) -> SpanContext | None:
    parts = (traceparent or "").split("-")
    if len(parts) != 4 or len(parts[1]) != 32 or len(parts[2]) != 16:
        return None
    try:
        about = SpanContext(int(parts[1], 16), int(parts[2], 16), True, TraceFlags(int(parts[3], 16)))
    except ValueError:
        return None
    return about if about.is_valid else None


def _context_of(traceparent: str | None) -> context.Context:
    about = _span_context(traceparent)
    return context.Context() if about is None else trace.set_span_in_context(NonRecordingSpan(about), context.Context())


def _links(traceparent: str | None) -> list[Link]:
    about = _span_context(traceparent)
    return [] if about is None else [Link(about)]
