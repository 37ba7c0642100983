"""Traces: creation, dispatch and run of an execution, linked. Without an OpenTelemetry SDK all of it costs nothing.

Work may be due next week, so a run is not part of the trace that created its job: it has a trace of its own, whose id is the
execution's id, and links to the creation. Dispatch and run of every attempt are in that one trace.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import msgspec
from opentelemetry import context, trace
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, SpanKind, StatusCode, TraceFlags, Tracer

from noonday.model.execution import Outcome
from noonday.model.message import Dispatch

next_trace_id: ContextVar[int | None] = ContextVar("next_trace_id", default=None)
"""The id that a trace begun now should have; heeded by the generator that `wiring/telemetry.py` installs."""

_FINE = frozenset({Outcome.SUCCEEDED, Outcome.SNOOZED, Outcome.INTERRUPTED})


def trace_id_of(execution_id: str) -> str:
    return execution_id.replace("-", "")


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
        parent = _context_of(traceparent)
        with self._tracer.start_as_current_span("create jobs", parent, kind=SpanKind.PRODUCER) as span:
            span.set_attributes(_attributes("create", "jobs") | {"messaging.batch.message_count": jobs})
            yield _traceparent(span)

    def dispatched(self, dispatches: Sequence[Dispatch]) -> Sequence[Dispatch]:
        """A span for each dispatch, which the dispatch then carries to its worker."""
        if self._tracer is None:
            return dispatches
        return [self._dispatched(self._tracer, dispatch) for dispatch in dispatches]

    def _dispatched(self, tracer: Tracer, dispatch: Dispatch) -> Dispatch:
        token = next_trace_id.set(int(trace_id_of(dispatch.execution_id), 16))
        try:
            span = tracer.start_span(
                f"dispatch {dispatch.pool}", context.Context(), SpanKind.PRODUCER, links=_links(dispatch.trace)
            )
        finally:
            next_trace_id.reset(token)
        span.set_attributes(_attributes("send", dispatch.pool) | _about(dispatch))
        span.end()
        return msgspec.structs.replace(dispatch, trace=_traceparent(span), created_trace=dispatch.trace)

    def begin(self, dispatch: Dispatch) -> Span | None:
        """The span of a run."""
        if self._tracer is None:
            return None
        span = self._tracer.start_span(
            f"process {dispatch.handler}",
            _context_of(dispatch.trace),
            SpanKind.CONSUMER,
            links=_links(dispatch.created_trace),
        )
        span.set_attributes(_attributes("process", dispatch.pool) | _about(dispatch))
        return span

    def activate(self, span: Span | None) -> None:
        """Make the span the current one, in the context this is called in."""
        if span is not None:
            context.attach(trace.set_span_in_context(span))

    def end(self, span: Span | None, outcome: Outcome, error: str | None) -> None:
        if span is None:
            return
        span.set_attribute("noonday.outcome", outcome.name)
        if outcome not in _FINE:
            span.set_status(StatusCode.ERROR, error)
            span.set_attribute("error.type", error or outcome.name)
        span.end()


def _attributes(operation: str, destination: str) -> dict[str, Any]:
    return {
        "messaging.system": "noonday",
        "messaging.operation.name": operation,
        "messaging.destination.name": destination,
    }


def _about(dispatch: Dispatch) -> dict[str, Any]:
    return {
        "messaging.message.id": dispatch.execution_id,
        "noonday.job.id": dispatch.job_id,
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
