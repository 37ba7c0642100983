"""The store as alerting uses it: alerts, their events, and the queries of the dead-man's switch."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence

from noonday.model.alert import Alert, AlertEvent, AlertFilter, LateWork, Observation, SlowRun
from noonday.model.audit import AuditEntry
from noonday.model.ids import TenantId
from noonday.model.receipt import Receipt


class Alerts(ABC):
    """Open, list and acknowledge alerts, and find what is late, stranded or slow."""

    @abstractmethod
    async def record(self, observations: Sequence[Observation]) -> int:
        """Open alerts or add to open ones, and write their events, in one transaction. Returns how many alerts were opened.

        The named incidents are deleted. If several processes record the same incident, exactly one wins; the others'
        observations are dropped. Names, pools and endpoints are those of the jobs.
        """

    @abstractmethod
    async def events(self, limit: int) -> list[AlertEvent]:
        """Return the oldest events that are not processed yet. `Notices.collect` deletes those that it processes."""

    @abstractmethod
    async def recover(self, after: str, limit: int, now_ms: int) -> tuple[str | None, int]:
        """Mark alerts as recovered whose job has succeeded since, and write one event for each such job.

        Examines up to `limit` alerts that a success ends, by id, beginning after `after`. An acknowledged alert recovers too.
        Returns the id of the last alert examined, or None if there are no more, and how many jobs have recovered.
        """

    @abstractmethod
    async def late(self, after: tuple[int, str], due_before_ms: int, limit: int) -> list[LateWork]:
        """Return timeline rows that were due before an instant, by (due_ms, key), beginning after `after`."""

    @abstractmethod
    async def stranded(self, after: str, fired_before_ms: int, limit: int) -> tuple[str | None, list[LateWork]]:
        """Return executions that were dispatched before an instant and have not started.

        Examines up to `limit` open executions, by job id, beginning after the job `after`. Also returns the job of the last
        execution examined, or None if there are no more.
        """

    @abstractmethod
    async def slow(self, after: str, started_before_ms: int, limit: int) -> list[SlowRun]:
        """Return each job's oldest run that started before an instant, by job id, beginning after the job `after`."""

    @abstractmethod
    async def list_alerts(self, tenant: TenantId, where: AlertFilter, after: str | None, limit: int) -> list[Alert]:
        """Return alerts, newest first, beginning after the id `after`."""

    @abstractmethod
    async def count_unread(self, tenant: TenantId, most: int) -> int:
        """Return how many alerts are not acknowledged, counted up to `most`."""

    @abstractmethod
    async def find_alert(self, tenant: TenantId, alert: str) -> Alert | None: ...

    @abstractmethod
    async def acknowledge(
        self, tenant: TenantId, alerts: Collection[str], now_ms: int, audit: AuditEntry, receipt: Receipt | None = None
    ) -> int:
        """Mark alerts as acknowledged by the subject of `audit`. Returns how many were not acknowledged before."""

    @abstractmethod
    async def prune(self, before_ms: int, limit: int) -> int:
        """Delete some alerts that were last added to before an instant. Returns how many were deleted."""
