"""What people should know of, and whether they do: the store's side of alerts."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence

import msgspec

from noonday.model.alert import Alert, AlertEvent, AlertKind, Observation
from noonday.model.ids import TenantId
from noonday.ports.jobs import AuditEntry, Receipt


class AlertFilter(msgspec.Struct, frozen=True):
    unread: bool | None = None
    """Only those that nobody has acknowledged; or only those that somebody has."""
    kind: AlertKind | None = None
    job_id: str | None = None
    until_ms: int | None = None
    """Only those that were last added to by then."""


class Late(msgspec.Struct, frozen=True):
    """Something that is due and has not begun: on the timeline, or handed out."""

    due_ms: int
    key: str
    tenant: TenantId
    pool: str
    job_id: str
    """Empty, if that is gone."""
    execution_id: str
    """Empty, if there is none yet."""
    early: bool
    """False, if it may have to wait for others of its job or its concurrency key."""
    handed_out: bool = False
    """True, if it is off the timeline, and a worker should have begun it."""


class Slow(msgspec.Struct, frozen=True):
    """The oldest run of a job, with what is usual for it."""

    tenant: TenantId
    job_id: str
    execution_id: str
    pool: str
    started_ms: int
    successes: int
    """Of how many `longest_ms` is."""
    longest_ms: int


class Alerts(ABC):
    @abstractmethod
    async def take_in(self, observations: Sequence[Observation]) -> int:
        """Open alerts, or add to those that are open, and note what happened, in one transaction.

        The incidents named are taken away by it: of several who take in the same incident one does, and the observations of the
        others are nothing. Names, pools and endpoints are those of the jobs. Answers how many alerts were opened.
        """

    @abstractmethod
    async def events(self, limit: int) -> list[AlertEvent]:
        """The oldest ones of which nobody was told yet. Whoever tells of them deletes them, in the same transaction."""

    @abstractmethod
    async def recover(self, after: str, limit: int, now_ms: int) -> tuple[str | None, int]:
        """Look at so many alerts that a success ends, by id, beginning after `after`, whether their job has succeeded since:
        those have recovered, and of each job that is an event. An acknowledged alert recovers too.

        Answers the id of the last one looked at, None if there are no more; and how many jobs have recovered.
        """

    @abstractmethod
    async def late(self, after: tuple[int, str], due_before_ms: int, limit: int) -> list[Late]:
        """Rows of the timeline that were due before an instant, by (due, key), beginning after `after`."""

    @abstractmethod
    async def stranded(self, after: str, fired_before_ms: int, limit: int) -> tuple[str | None, list[Late]]:
        """Look at so many open executions, of jobs by their ids, beginning after `after`: which were handed out before an
        instant and have not begun. Answers the job of the last one looked at too; None, if there are no more."""

    @abstractmethod
    async def slow(self, after: str, started_before_ms: int, limit: int) -> list[Slow]:
        """Of jobs by their ids, beginning after `after`, the oldest run that began before an instant."""

    @abstractmethod
    async def list_alerts(self, tenant: TenantId, where: AlertFilter, after: str | None, limit: int) -> list[Alert]:
        """Newest first, beginning after the id `after`."""

    @abstractmethod
    async def count_unread(self, tenant: TenantId, most: int) -> int:
        """How many nobody has acknowledged. Counts no further than `most`."""

    @abstractmethod
    async def find_alert(self, tenant: TenantId, alert: str) -> Alert | None: ...

    @abstractmethod
    async def acknowledge(
        self, tenant: TenantId, alerts: Collection[str], now_ms: int, audit: AuditEntry, receipt: Receipt | None = None
    ) -> int:
        """Somebody (of whom `audit` tells) has seen these. Answers how many nobody had acknowledged before."""

    @abstractmethod
    async def prune(self, before_ms: int, limit: int) -> int:
        """Delete a small step of what was last added to before an instant. Answers how many alerts went."""
