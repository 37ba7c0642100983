"""Operators who read another tenant: each tenant's audit names them, once a day."""

from noonday.model.caller import Caller
from noonday.ports.archive import Archive
from noonday.ports.clock import Clock
from noonday.ports.jobs import AuditEntry

OPERATOR_READ = "OPERATOR_READ"
DAY_MS = 86_400_000
MOST_REMEMBERED = 4_096


class Visits:
    """Writes the first read of each operator, tenant and day (UTC) into that tenant's audit."""

    def __init__(self, archive: Archive, clock: Clock) -> None:
        self._archive = archive
        self._clock = clock
        self._noted: dict[tuple[str, str, int], None] = {}
        """What this process knows to be stored. The store decides; this spares it a write for every read."""

    async def note(self, caller: Caller) -> None:
        """Store the visit before anything is read."""
        now_ms = self._clock.now_ms()
        visit = (caller.tenant, caller.subject, now_ms // DAY_MS)
        if visit in self._noted:
            return
        await self._archive.note_visit(AuditEntry(caller.tenant, now_ms, caller.subject, OPERATOR_READ, caller.tenant))
        if len(self._noted) >= MOST_REMEMBERED:
            del self._noted[next(iter(self._noted))]
        self._noted[visit] = None
