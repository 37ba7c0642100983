"""Acts upon what happened to executions: so far, upon receivers that want no more calls."""

from contextlib import suppress

import structlog

from noonday.intake.desk import Desk
from noonday.model.caller import Caller
from noonday.model.errors import Conflict, NotFound
from noonday.ports.executions import Executions, Incident

log = structlog.get_logger("noonday.herald")
BATCH = 100
OURSELVES = "noonday"


class Herald:
    """Any number of them may act upon the same incident: the second one finds it done."""

    def __init__(self, executions: Executions, desk: Desk) -> None:
        self._executions = executions
        self._desk = desk

    async def run_once(self, now_ms: int) -> int:
        incidents = await self._executions.incidents(BATCH)
        for incident in incidents:
            await self._halt(incident)
        if incidents:
            await self._executions.dealt_with([incident.id for incident in incidents])
        return len(incidents)

    async def _halt(self, incident: Incident) -> None:
        caller = Caller(incident.tenant, OURSELVES, frozenset())
        with suppress(NotFound, Conflict):  # nothing of it is to come anyway
            await self._desk.halt(caller, incident.job_id, f"the receiver wants no more calls: {incident.message}")
            log.info("halted", job=incident.job_id, why=incident.message)
