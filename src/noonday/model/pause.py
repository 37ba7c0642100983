"""Pauses of a tenant, a pool, or everything."""

from collections.abc import Container

ALL = ("ALL", "")


def is_paused(pauses: Container[tuple[str, str]], tenant: str, pool: str) -> bool:
    """Whether a (kind, name) among the pauses stops what a tenant has in a pool."""
    return ALL in pauses or ("POOL", pool) in pauses or ("TENANT", tenant) in pauses
