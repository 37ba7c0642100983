"""Whom webhooks call, as a tenant sees it: how fast it may be called, how it is doing, and its name in URLs."""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from enum import StrEnum
from typing import Annotated

import msgspec

DAY_MS = 86_400_000
DISABLE_AFTER_DAYS = 5.0
LEAST_FAILURES = 5
"""Fewer say nothing, however far apart they are."""
QUIET_MS = 7 * DAY_MS
"""If nobody failed for so long, the next failure is a first one."""
LONGEST_ENDPOINT = 280
"""`https://`, a host of 253 characters, and a port."""
ENDPOINT_PATTERN = r"^https?://(\[[0-9a-f:.]{2,45}\]|[a-z0-9_]([a-z0-9_.-]{0,251}[a-z0-9_])?):[1-9][0-9]{0,4}$"
_ENDPOINT = re.compile(ENDPOINT_PATTERN)
ID_PATTERN = r"^ep_[A-Za-z0-9_-]{12,500}$"

Calls = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
PerSecond = Annotated[float, msgspec.Meta(ge=0.001, le=1_000_000)]
Days = Annotated[float, msgspec.Meta(ge=0, le=3650)]


class EndpointLimits(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """How it may be called, as it travels with each call."""

    max_concurrency: int | None
    rate_per_sec: float | None
    burst: int = 1

    @property
    def interval_ms(self) -> float:
        """Between two calls at that rate; 0, if there is none."""
        return 1000 / self.rate_per_sec if self.rate_per_sec else 0.0


class EndpointSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a tenant revocations for its calls to an endpoint."""

    max_concurrency: Calls | None = None
    """At most so many calls at once; null: any number."""
    rate_per_sec: PerSecond | None = None
    """At most so many calls a second; null: any number."""
    burst: Calls = 1
    """So many may come at once when there were none for a while."""
    disable_after_days: Days = DISABLE_AFTER_DAYS
    """Disabled when it has failed for so long without a success; 0: never."""

    @property
    def limits(self) -> EndpointLimits | None:
        if self.max_concurrency is None and self.rate_per_sec is None:
            return None
        return EndpointLimits(self.max_concurrency, self.rate_per_sec, self.burst)


class Condition(StrEnum):
    HEALTHY = "HEALTHY"
    FAILING = "FAILING"
    """The last calls failed, and none succeeded since."""
    DISABLED = "DISABLED"
    """It is not called, and its tasks are stopped."""


class EndpointHealth(msgspec.Struct, frozen=True):
    """What calls came to. Instants in ms."""

    failing_since_ms: int | None = None
    failures: int = 0
    """Since then."""
    last_success_ms: int | None = None
    """To the minute."""
    last_failure_ms: int | None = None
    last_error: str | None = None
    disabled_ms: int | None = None
    disabled_why: str | None = None

    @property
    def status(self) -> Condition:
        if self.disabled_ms is not None:
            return Condition.DISABLED
        return Condition.HEALTHY if self.failing_since_ms is None else Condition.FAILING

    def is_hopeless(self, settings: EndpointSettings, now_ms: int) -> bool:
        """Whether it has failed for long enough to be disabled. The store says the same in SQL."""
        if self.failing_since_ms is None or self.disabled_ms is not None or not settings.disable_after_days:
            return False
        long_enough = now_ms - self.failing_since_ms >= settings.disable_after_days * DAY_MS
        return long_enough and self.failures >= LEAST_FAILURES


def flaw_of_endpoint(text: str) -> str | None:
    """What is wrong with the name of an endpoint, in words. It is kept and logged, so it is bounded and printable."""
    if len(text) > LONGEST_ENDPOINT or not _ENDPOINT.fullmatch(text):
        return "must be scheme, host and port in lower case, such as https://api.example.com:443"
    return None


def endpoint_id(endpoint: str) -> str:
    """The name of an endpoint in URLs; it can be made of one that nobody has heard of."""
    return "ep_" + urlsafe_b64encode(endpoint.encode()).decode().rstrip("=")


def endpoint_named(name: str) -> str | None:
    """The endpoint that has this id. None if it cannot be an id."""
    text = name.removeprefix("ep_")
    try:
        endpoint = urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode("ascii")
    except (NotBase64, ValueError):
        return None
    return endpoint if endpoint_id(endpoint) == name and endpoint.isprintable() else None
