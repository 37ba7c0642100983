"""Endpoints as the API and its clients exchange them."""

from datetime import datetime
from typing import Annotated

import msgspec

from noonday.model.endpoint import Condition, EndpointSettings
from noonday.model.view import Page


class EndpointHealthView(msgspec.Struct, frozen=True):
    """Health of an endpoint, from the results of its calls."""

    status: Condition
    failing_since: datetime | None
    failures: int
    """Number of failures since `failing_since`."""
    last_success_at: datetime | None
    """Accurate to the minute."""
    last_failure_at: datetime | None
    last_error: str | None
    disabled_at: datetime | None
    disabled_because: str | None


class EndpointView(msgspec.Struct, frozen=True):
    id: str
    endpoint: str
    """Scheme, host and port."""
    settings: EndpointSettings
    health: EndpointHealthView


class EndpointPage(Page, frozen=True, kw_only=True):
    endpoints: Annotated[tuple[EndpointView, ...], msgspec.Meta(description="By name")]
