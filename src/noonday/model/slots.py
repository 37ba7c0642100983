"""What an execution holds while it is handed out: one slot of each limit that it counts against.

Names are those of the store: of a concurrency key, of the tenant, of the tenant in one pool, of a pool whoever uses it. The one
slot of an ordering key is kept until the execution ends: also while it waits for a retry.
"""

from noonday.model.view import PoolSettings, TenantSettings

SlotKey = tuple[str, str]
"""(tenant, name); of a pool as a whole, the tenant is nobody."""

NOBODY = ""
OF_TENANT = "tenant"


def of_key(key: str) -> str:
    return f"key/{key}"


def of_ordering_key(key: str) -> str:
    return f"line/{key}"


def is_of_ordering_key(name: str) -> bool:
    return name.startswith("line/")


def of_tenant_in(pool: str) -> str:
    return f"tenant/{pool}"


def of_pool(pool: str) -> str:
    return f"pool/{pool}"


def pool_in(name: str) -> str | None:
    """Of which pool a cap is, if of one."""
    return name.partition("/")[2] or None


def slot_key(tenant: str, name: str) -> SlotKey:
    """Where a slot that an execution of a tenant holds is counted."""
    return (NOBODY, name) if name.startswith("pool/") else (tenant, name)


def capped_by(tenant: str, pool: str) -> tuple[SlotKey, SlotKey, SlotKey]:
    """Where there may be a cap on what a tenant runs in a pool."""
    return (tenant, OF_TENANT), (tenant, of_tenant_in(pool)), (NOBODY, of_pool(pool))


def caps_of_tenant(tenant: str, settings: TenantSettings) -> dict[SlotKey, int | None]:
    in_pools = {(tenant, of_tenant_in(pool)): each.max_running for pool, each in settings.pools.items()}
    return {(tenant, OF_TENANT): settings.max_running} | in_pools


def caps_of_pool(pool: str, settings: PoolSettings) -> dict[SlotKey, int | None]:
    return {(NOBODY, of_pool(pool)): settings.max_running}
