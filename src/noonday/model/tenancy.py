"""Bounds of the settings of tenants and pools."""

import msgspec

from noonday.model.errors import Flaw
from noonday.model.job import is_target_name
from noonday.model.rate import MAX_RATE, MIN_RATE, Rate
from noonday.model.view import PoolSettings, TenantSettings

MOST_RUNNING = 1_000_000
TENANT_BOUNDS: dict[str, tuple[float, float]] = {
    "weight": (1, 1000),
    "ratePerSec": (MIN_RATE, MAX_RATE),
    "burst": (1, int(MAX_RATE)),
    "maxRunning": (0, MOST_RUNNING),
    "maxJobs": (0, 10**12),
    "maxPayloadBytes": (0, 10**9),
    "defaultSpreadSec": (0, 86_400),
    "retentionDays": (1, 36_500),
}
POOL_BOUNDS: dict[str, tuple[float, float]] = {
    "timeoutSec": (0.001, 30 * 86_400),
    "maxRunning": (0, MOST_RUNNING),
}
IN_POOL_BOUNDS: dict[str, tuple[float, float]] = {"maxRunning": (0, MOST_RUNNING)}


def rate_of(settings: TenantSettings) -> Rate | None:
    """Return a tenant's rate, or None if it has none. The default burst is the rate of one second."""
    if settings.rate_per_sec is None:
        return None
    return Rate(settings.rate_per_sec, settings.burst or max(1, round(settings.rate_per_sec)))


def flaws_of_tenant(settings: TenantSettings) -> list[Flaw]:
    flaws = _outside(settings, TENANT_BOUNDS)
    for pool, each in settings.pools.items():
        flaws += flaws_of_pool_name(pool, "/pools") + _outside(each, IN_POOL_BOUNDS, f"/pools/{pool}")
    return flaws


def flaws_of_pool_name(name: str, pointer: str = "") -> list[Flaw]:
    if is_target_name(name):
        return []
    detail = "a pool name must be 1 to 100 letters, digits, '.', '_', ':' or '-', beginning with a letter or digit"
    return [Flaw(pointer, detail, name)]


def flaws_of_pool(settings: PoolSettings) -> list[Flaw]:
    return _outside(settings, POOL_BOUNDS)


def _outside(settings: msgspec.Struct, bounds: dict[str, tuple[float, float]], at: str = "") -> list[Flaw]:
    values = msgspec.to_builtins(settings)
    return [
        Flaw(f"{at}/{name}", f"must be from {_plain(least)} to {_plain(most)}", value)
        for name, (least, most) in bounds.items()
        if (value := values.get(name)) is not None and not least <= value <= most
    ]


def _plain(number: float) -> str:
    return str(number) if isinstance(number, int) or number < 1 else f"{number:.0f}"
