"""Names of slots. A dispatched execution occupies one slot of each limit that it counts against.

The limits are those of a concurrency key, of a tenant, of a tenant in one pool, and of a pool across all tenants. An execution
keeps the one slot of an ordering key until it ends, even while it waits for a retry. The names are stored.
"""

from typing import NamedTuple

from noonday.model.view import PoolSettings, TenantSettings

SlotKey = tuple[str, str]
"""(tenant, name). The tenant is NOBODY for the limit of a pool across all tenants."""

NOBODY = ""
OF_TENANT = "tenant"


def of_key(key: str) -> str:
    return f"key/{key}"


def of_ordering_key(key: str) -> str:
    return f"ordering/{key}"


def is_of_ordering_key(name: str) -> bool:
    return name.startswith("ordering/")


def of_tenant_in(pool: str) -> str:
    return f"tenant/{pool}"


def of_pool(pool: str) -> str:
    return f"pool/{pool}"


def pool_in(name: str) -> str | None:
    """Return the pool in the name of a cap, or None if it names none."""
    return name.partition("/")[2] or None


def slot_key(tenant: str, name: str) -> SlotKey:
    """Return the key under which a slot of a tenant's execution is counted."""
    return (NOBODY, name) if name.startswith("pool/") else (tenant, name)


def capped_by(tenant: str, pool: str) -> tuple[SlotKey, SlotKey, SlotKey]:
    """Return the slots that may cap what a tenant runs in a pool."""
    return (tenant, OF_TENANT), (tenant, of_tenant_in(pool)), (NOBODY, of_pool(pool))


def caps_of_tenant(tenant: str, settings: TenantSettings) -> dict[SlotKey, int | None]:
    """Return the caps in a tenant's settings. None removes a cap."""
    in_pools = {(tenant, of_tenant_in(pool)): each.max_running for pool, each in settings.pools.items()}
    return {(tenant, OF_TENANT): settings.max_running} | in_pools


def caps_of_pool(pool: str, settings: PoolSettings) -> dict[SlotKey, int | None]:
    """Return the cap in a pool's settings. None removes the cap."""
    return {(NOBODY, of_pool(pool)): settings.max_running}


class Slots(NamedTuple):
    """Number of dispatched open executions that occupy a slot, and its cap."""

    used: int
    cap: int | None
