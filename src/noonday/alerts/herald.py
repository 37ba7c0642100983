"""Acts upon what happened to executions: what people should know becomes an alert, and whom nobody wants to call is halted."""

from contextlib import suppress

import structlog

from noonday.alerts.crowd import Crowd
from noonday.intake.desk import Desk
from noonday.model.alert import GIVEN_UP, AlertKind, Sighting
from noonday.model.caller import Caller
from noonday.model.errors import Conflict, NotFound
from noonday.model.execution import GONE
from noonday.ports.alerts import Alerts
from noonday.ports.executions import Executions, Incident

log = structlog.get_logger("noonday.herald")
BATCH = 1_000
MOST = 1_000
OURSELVES = "noonday"
_KINDS = {GONE: AlertKind.STOPPED, GIVEN_UP: AlertKind.MISSED, **{kind.value: kind for kind in AlertKind}}


class Herald:
    """Any number of them may act upon the same incident: one takes it in, and to halt a job twice is to halt it."""

    def __init__(self, executions: Executions, alerts: Alerts, desk: Desk) -> None:
        self._executions = executions
        self._alerts = alerts
        self._desk = desk
        self._crowd = Crowd(MOST)

    async def run_once(self, now_ms: int) -> int:
        # Of another kind are those that a newer process has written: they wait for one.
        incidents = [each for each in await self._executions.incidents(BATCH) if each.kind in _KINDS]
        for incident in incidents:
            if incident.kind == GONE:
                await self._halt(incident)
        if incidents:
            sightings = [sighting_of(incident) for incident in incidents]
            await self._alerts.take_in(self._crowd.thin_out(sightings, now_ms))
        return len(incidents)

    async def _halt(self, incident: Incident) -> None:
        caller = Caller(incident.tenant, OURSELVES, frozenset())
        with suppress(NotFound, Conflict):  # nothing of it is to come anyway
            await self._desk.halt(caller, incident.job_id, incident.message)
            log.info("halted", job=incident.job_id, why=incident.message)


def sighting_of(incident: Incident) -> Sighting:
    """Of an endpoint, if it is not about a job: then its message begins with it."""
    endpoint = None if incident.job_id else incident.message.partition(" ")[0]
    return Sighting(
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
