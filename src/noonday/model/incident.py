"""Incidents: events that may become alerts."""

import msgspec

from noonday.model.ids import ExecutionId, JobId, TenantId


class Incident(msgspec.Struct, frozen=True):
    """An event that needs attention, stored until an alert is recorded for it."""

    id: int
    kind: str
    tenant: TenantId
    execution_id: ExecutionId
    job_id: JobId
    message: str
    at_ms: int
