"""Incident consumer: turns incidents into alerts, and halts jobs whose receiver is gone."""

from contextlib import suppress

import structlog

from noonday.alerts.aggregator import AlertAggregator
from noonday.intake.job_service import JobService
from noonday.model.alert import GIVEN_UP, AlertKind, Observation
from noonday.model.caller import Caller
from noonday.model.errors import Conflict, NotFound
from noonday.model.execution import GONE
from noonday.model.incident import Incident
from noonday.ports.alerts import Alerts
from noonday.ports.executions import Executions

log = structlog.get_logger("noonday.alerts")
BATCH = 1_000
"""Incidents consumed in one round."""
MAX_SUBJECTS = 1_000
"""Jobs of one tenant that may have their own alert of one kind in an hour; all others share one alert."""
SYSTEM_SUBJECT = "noonday"
_KINDS = {GONE: AlertKind.STOPPED, GIVEN_UP: AlertKind.MISSED, **{kind.value: kind for kind in AlertKind}}


class IncidentConsumer:
    """Consumes incidents.

    If several processes consume the same incident, exactly one wins. Halting a job is idempotent.
    """

    def __init__(self, executions: Executions, alerts: Alerts, job_service: JobService) -> None:
        self._executions = executions
        self._alerts = alerts
        self._job_service = job_service
        self._aggregator = AlertAggregator(MAX_SUBJECTS)

    async def run_once(self, now_ms: int) -> int:
        # A newer version may have written incidents of kinds unknown here. They wait for a process of that version.
        found = await self._executions.incidents(BATCH)
        incidents = [incident for incident in found if incident.kind in _KINDS]
        for incident in incidents:
            if incident.kind == GONE:
                await self._halt(incident)
        if incidents:
            observations = [observation_of(incident) for incident in incidents]
            await self._alerts.record(self._aggregator.aggregate(observations, now_ms))
        return len(incidents)

    async def _halt(self, incident: Incident) -> None:
        caller = Caller(incident.tenant, SYSTEM_SUBJECT, frozenset())
        with suppress(NotFound, Conflict):  # the job has no runs left to halt
            await self._job_service.halt(caller, incident.job_id, incident.message)
            log.info("job halted", job=incident.job_id, reason=incident.message)


def observation_of(incident: Incident) -> Observation:
    """Convert an incident. An incident without a job is about an endpoint, the first word of its message."""
    endpoint = None if incident.job_id else incident.message.partition(" ")[0]
    return Observation(
        kind=_KINDS[incident.kind],
        tenant=incident.tenant,
        about=endpoint or incident.job_id,
        message=incident.message,
        at_ms=incident.at_ms,
        job_id=incident.job_id,
        execution_id="" if incident.kind == GIVEN_UP else incident.execution_id,
        endpoint=endpoint,
        incident=incident.id,
    )
