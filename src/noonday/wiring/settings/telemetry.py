"""Settings of traces and metrics."""

from typing import Annotated

from msgspec import Meta

from noonday.wiring.settings.section import Section


class TelemetrySettings(Section, frozen=True, kw_only=True):
    """Export of traces."""

    otlp_endpoint: Annotated[
        Annotated[str, Meta(pattern="^https?://")] | None,
        Meta(description="URL that receives traces (OTLP over HTTP). Without it, no traces are exported."),
    ] = None
    service_name: Annotated[str, Meta(min_length=1, description="Service name in traces.")] = "noonday"


class MetricsSettings(Section, frozen=True, kw_only=True):
    """Optional metrics."""

    tenants: Annotated[bool, Meta(description="Count runs for each tenant too.")] = False
    max_tenants: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000,
            description="Maximum number of tenants with their own metric label. All later tenants share one label.",
        ),
    ] = 100

    @property
    def named_tenants(self) -> int:
        return self.max_tenants if self.tenants else 0
