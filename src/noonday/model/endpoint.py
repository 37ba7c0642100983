"""Endpoints that webhooks call: their limits, their health, and their ids in URLs."""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Annotated, Any

import msgspec

from noonday.model.ids import TenantId
from noonday.model.secret import EndpointKey
from noonday.model.stored import read_stored

DAY_MS = 86_400_000
DISABLE_AFTER_DAYS = 5.0
LEAST_FAILURES = 5
"""Minimum number of failures before an endpoint may be disabled, however long it has failed."""
QUIET_MS = 7 * DAY_MS
"""After this time without a failure, the next failure starts a new period of failing."""
LONGEST_ENDPOINT = 280
"""Maximum length in characters: `https://`, a host of 253 characters, and a port."""
ENDPOINT_PATTERN = r"^https?://(\[[0-9a-f:.]{2,45}\]|[a-z0-9_]([a-z0-9_.-]{0,251}[a-z0-9_])?):[1-9][0-9]{0,4}$"
_ENDPOINT = re.compile(ENDPOINT_PATTERN)
ID_PATTERN = r"^ep_[A-Za-z0-9_-]{12,500}$"

Calls = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
PerSecond = Annotated[float, msgspec.Meta(ge=0.001, le=1_000_000)]
Days = Annotated[float, msgspec.Meta(ge=0, le=3650)]


class EndpointLimits(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The limits of calls to an endpoint, as each dispatch carries them."""

    max_concurrency: int | None
    rate_per_sec: float | None
    burst: int = 1

    @property
    def interval_ms(self) -> float:
        """The time between two calls at this rate. 0 if there is no rate."""
        return 1000 / self.rate_per_sec if self.rate_per_sec else 0.0


class EndpointSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tenant's settings for its calls to an endpoint."""

    max_concurrency: Calls | None = None
    """Maximum number of concurrent calls. Null means no limit."""
    rate_per_sec: PerSecond | None = None
    """Maximum number of calls per second. Null means no limit."""
    burst: Calls = 1
    """Maximum number of calls at once after a time without calls."""
    disable_after_days: Days = DISABLE_AFTER_DAYS
    """The endpoint is disabled when it has failed for this many days without a success. 0 disables this."""

    @property
    def limits(self) -> EndpointLimits | None:
        if self.max_concurrency is None and self.rate_per_sec is None:
            return None
        return EndpointLimits(self.max_concurrency, self.rate_per_sec, self.burst)


class Condition(StrEnum):
    """The status of an endpoint."""

    HEALTHY = "HEALTHY"
    FAILING = "FAILING"
    """The last calls failed, and none succeeded since."""
    DISABLED = "DISABLED"
    """The endpoint is not called, and its tasks are halted."""


class EndpointHealth(msgspec.Struct, frozen=True):
    """The outcomes of calls to an endpoint."""

    failing_since_ms: int | None = None
    failures: int = 0
    """Number of failures since `failing_since_ms`."""
    last_success_ms: int | None = None
    """Precise to the minute."""
    last_failure_ms: int | None = None
    last_error: str | None = None
    disabled_ms: int | None = None
    disabled_why: str | None = None

    @property
    def status(self) -> Condition:
        if self.disabled_ms is not None:
            return Condition.DISABLED
        return Condition.HEALTHY if self.failing_since_ms is None else Condition.FAILING


def flaw_of_endpoint(text: str) -> str | None:
    """Return what is wrong with an endpoint, or None. It is stored and logged, so it must be short and printable."""
    if len(text) > LONGEST_ENDPOINT or not _ENDPOINT.fullmatch(text):
        return "must be scheme, host and port in lower case, such as https://api.example.com:443"
    return None


def endpoint_id(endpoint: str) -> str:
    """Return the id of an endpoint in URLs. An endpoint has an id whether it is stored or not."""
    return "ep_" + urlsafe_b64encode(endpoint.encode()).decode().rstrip("=")


def endpoint_named(name: str) -> str | None:
    """Return the endpoint that has this id, or None if it is not a valid id."""
    text = name.removeprefix("ep_")
    try:
        endpoint = urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode("ascii")
    except (NotBase64, ValueError):
        return None
    return endpoint if endpoint_id(endpoint) == name and endpoint.isprintable() else None


class EndpointRow(msgspec.Struct, frozen=True):
    """The settings and health of an endpoint. Only an endpoint that was called or has settings has a row."""

    tenant: TenantId
    endpoint: str
    settings: EndpointSettings
    health: EndpointHealth

    @property
    def key(self) -> EndpointKey:
        return self.tenant, self.endpoint


class Failures(msgspec.Struct, frozen=True):
    """Failed calls to an endpoint since its last success."""

    count: int
    error: str
    """The last error, for people."""


def row_of(row: Mapping[str, Any]) -> EndpointRow:
    """Return the endpoint of a stored row: tenant, endpoint, settings as JSON, and the columns of its health."""
    health = EndpointHealth(**{name: row[name] for name in EndpointHealth.__struct_fields__})
    return EndpointRow(row["tenant"], row["endpoint"], _settings(row["settings"]), health)


def limits_in(rows: Iterable[Mapping[str, Any]]) -> dict[EndpointKey, EndpointLimits]:
    """Return the limits in rows of tenant, endpoint and settings as JSON. An endpoint without limits is missing."""
    found = {(row["tenant"], row["endpoint"]): _settings(row["settings"]).limits for row in rows}
    return {key: limits for key, limits in found.items() if limits is not None}


def _settings(text: str | None) -> EndpointSettings:
    return EndpointSettings() if text is None else read_stored(text, EndpointSettings)
