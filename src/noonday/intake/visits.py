"""Visits: reads of a tenant by operators of another one, noted in the tenant's audit log once a day."""

from noonday.model.audit import AuditEntry
from noonday.model.caller import Caller
from noonday.ports.clock import Clock
from noonday.ports.settings import SettingsStore

OPERATOR_READ = "OPERATOR_READ"
DAY_MS = 86_400_000
MAX_REMEMBERED = 4_096
"""Maximum number of visits that a process remembers as stored."""


class Visits:
    """Writes the first read of each operator, tenant and day (UTC) to the tenant's audit log."""

    def __init__(self, settings_store: SettingsStore, clock: Clock) -> None:
        self._settings_store = settings_store
        self._clock = clock
        self._noted: dict[tuple[str, str, int], None] = {}
        """Visits that are stored, to avoid a write for every read. The store itself ignores duplicates."""

    async def note(self, caller: Caller) -> None:
        """Store a visit. Call it before anything is read."""
        now_ms = self._clock.now_ms()
        visit = (caller.tenant, caller.subject, now_ms // DAY_MS)
        if visit in self._noted:
            return
        await self._settings_store.note_visit(
            AuditEntry(caller.tenant, now_ms, caller.subject, OPERATOR_READ, caller.tenant)
        )
        if len(self._noted) >= MAX_REMEMBERED:
            del self._noted[next(iter(self._noted))]
        self._noted[visit] = None
