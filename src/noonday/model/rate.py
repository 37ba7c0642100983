"""Rates with a burst: the generic cell rate algorithm, for many tokens at a time."""

from dataclasses import dataclass
from math import floor

from noonday.model.ids import TenantId

MIN_RATE, MAX_RATE = 0.001, 1e9
"""Bounds of a rate, in tokens per second."""
_NEARLY = 1e-6
"""Tolerance for the rounding of floats: a token that is whole but for this counts as whole."""


@dataclass(frozen=True, slots=True)
class Rate:
    """A number of tokens per second, and how many may be taken at once after a time without use."""

    per_sec: float
    burst: int

    @property
    def interval_ms(self) -> float:
        return 1000 / self.per_sec


@dataclass(frozen=True, slots=True)
class TokenGrant:
    """The tokens that a request got."""

    count: int
    more_ms: int
    """Time when one more token is available."""


def take(rate: Rate, spent_until_ms: float, count: int, now_ms: int) -> tuple[TokenGrant, float]:
    """Take up to `count` tokens, or return tokens if it is negative. Returns the grant, and until when the rate is spent."""
    interval = rate.interval_ms
    # If the rate is spent for more than a burst, the clock was set back or the rate was raised.
    spent = min(max(spent_until_ms, float(now_ms)), now_ms + rate.burst * interval)
    most = max(0, floor(rate.burst - (spent - now_ms) / interval + _NEARLY))
    granted = min(count, most)
    spent = max(float(now_ms), spent + granted * interval)
    more_ms = now_ms if granted < most else floor(spent - (rate.burst - 1) * interval) + 1
    return TokenGrant(granted, max(now_ms, more_ms)), spent


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """A request for tokens of a tenant's rate."""

    tenant: TenantId
    rate: Rate
    count: int
    """Number of tokens requested. A negative number returns unused tokens."""
