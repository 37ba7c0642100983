"""Logs and traces, set up once per process."""

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
    """Quiet by default: warnings and worse, one line each, on standard error."""
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
    """To the OTLP endpoint that is configured; else to whatever the application has set up; else off."""
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
            "telemetry.otlp_endpoint is set, but the extra is not installed: pip install 'noonday[otlp]'"
        ) from None

    class ExecutionIds(RandomIdGenerator):
        """The trace of an execution has the execution's id."""

        def generate_trace_id(self) -> int:
            return next_trace_id.get() or super().generate_trace_id()

    class Evenly(Sampler):
        """Samplers that keep a share compare the lower half of the id with it. There an execution's id begins with four bits
        that are the same in all of them, and either all or none would be kept."""

        def __init__(self, chosen: Sampler) -> None:
            self._chosen = chosen

        def should_sample(
            self, parent_context: Context | None, trace_id: int, *others: Any, **more: Any
        ) -> SamplingResult:
            return self._chosen.should_sample(parent_context, trace_id << 4, *others, **more)

        def get_description(self) -> str:
            return self._chosen.get_description()

    about: dict[str, str | int] = {
        "service.name": service,
        "host.name": socket.gethostname(),
        "process.pid": os.getpid(),
    }
    provider = TracerProvider(resource=Resource.create({**about}), id_generator=ExecutionIds())
    provider.sampler = Evenly(provider.sampler)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces")))
    return Tracing(provider.get_tracer("noonday"), provider.force_flush)
