"""Set-up of logs and traces, once per process."""

import logging
import os
import socket
import sys
from typing import Any

import structlog
from opentelemetry import trace
from opentelemetry.context import Context

from noonday.model.errors import BadSettings
from noonday.runtime.tracing import Tracing, next_trace_id
from noonday.wiring.settings import Settings


def set_up_logs(settings: Settings) -> None:
    """Configure logging: one line per event on standard error, by default warnings and errors only."""
    renderer: Any = structlog.processors.JSONRenderer()
    if settings.log_format == "text":
        renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(settings.log_level)),
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


def tracing_of(settings: Settings) -> Tracing:
    """Return tracing to the configured OTLP endpoint, else to the tracer provider of the application, else none."""
    if settings.telemetry.otlp_endpoint:
        return _exporting(settings.telemetry.otlp_endpoint, settings.telemetry.service_name)
    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
        return Tracing(None)
    return Tracing(provider.get_tracer("noonday"))


def _exporting(endpoint: str, service: str) -> Tracing:
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
        from opentelemetry.sdk.trace.sampling import Sampler, SamplingResult
    except ImportError:
        raise BadSettings(
            "telemetry.otlp_endpoint is set, but its extra is not installed: pip install 'noonday[otlp]'"
        ) from None

    class ExecutionIds(RandomIdGenerator):
        """Uses the id of an execution as the id of its trace."""

        def generate_trace_id(self) -> int:
            return next_trace_id.get() or super().generate_trace_id()

    class EvenSampler(Sampler):
        """Samples executions evenly.

        Ratio samplers compare the lower half of the trace id with a bound. In an execution id that half begins with four
        constant bits, so a ratio sampler would keep either all traces or none. This one shifts the id by these bits.
        """

        def __init__(self, sampler: Sampler) -> None:
            self._sampler = sampler

        def should_sample(
            self, parent_context: Context | None, trace_id: int, *others: Any, **more: Any
        ) -> SamplingResult:
            return self._sampler.should_sample(parent_context, trace_id << 4, *others, **more)

        def get_description(self) -> str:
            return self._sampler.get_description()

    attributes: dict[str, str | int] = {
        "service.name": service,
        "host.name": socket.gethostname(),
        "process.pid": os.getpid(),
    }
    provider = TracerProvider(resource=Resource.create({**attributes}), id_generator=ExecutionIds())
    provider.sampler = EvenSampler(provider.sampler)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces")))
    return Tracing(provider.get_tracer("noonday"), provider.force_flush)
