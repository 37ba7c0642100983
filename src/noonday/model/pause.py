"""Pauses of a tenant, a pool, or everything, and the ends of pauses of jobs."""

from collections.abc import Container
from typing import NamedTuple

from noonday.model.ids import JobId, TenantId

ALL = ("ALL", "")


def is_paused(pauses: Container[tuple[str, str]], tenant: str, pool: str) -> bool:
    """Return whether one of the pauses, each (kind, name), stops the jobs of a tenant in a pool."""
    return ALL in pauses or ("POOL", pool) in pauses or ("TENANT", tenant) in pauses


class DueResume(NamedTuple):
    """A paused job that is to be resumed at an instant."""

    tenant: TenantId
    job_id: JobId
    until_ms: int


class Pause(NamedTuple):
    """A pause of a TENANT, a POOL, or everything (ALL): nothing of it is dispatched."""

    kind: str
    name: str
    since_ms: int
    subject: str
