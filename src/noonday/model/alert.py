"""Alerts, the observations that open them, and the events that notify people of them.

An alert has one subject (a job, an endpoint, a tenant) and one kind. While it is open, more observations of the same subject and
kind only raise its count. It is open until it is acknowledged or the job succeeds again. After that, another observation opens
a new alert.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

import msgspec

from noonday.model.ids import ExecutionId, JobId, TenantId, execution_id

GIVEN_UP = "GIVEN_UP"
"""The kind of an incident without an execution: an occurrence was decided not to fire."""
MESSAGE_LIMIT = 1_000
"""Maximum length of an alert's message, in characters."""


class AlertKind(StrEnum):
    """The reason of an alert or event."""

    FAILED = "FAILED"
    """The first attempt of an execution failed. It is retried."""
    EXHAUSTED = "EXHAUSTED"
    """An execution has become a dead letter."""
    STOPPED = "STOPPED"
    """The receiver of a webhook wants no more calls."""
    DISABLED = "DISABLED"
    """An endpoint failed for so long that it is not called any more."""
    MISSED = "MISSED"
    """A job did not run when it was due."""
    SLOW = "SLOW"
    """An execution runs far longer than is usual for its job."""
    RECOVERED = "RECOVERED"
    """A job succeeded again. The kind of an event, never of an alert."""


EACH_COUNTS = frozenset({AlertKind.EXHAUSTED, AlertKind.DISABLED})
"""Kinds of which each observation is an event, even if its alert is open already: digests count dead letters, and an endpoint
that is disabled again was enabled in between."""


class AlertState(StrEnum):
    """The status of an alert."""

    OPEN = "OPEN"
    ACKNOWLEDGED = "ACKNOWLEDGED"
    RECOVERED = "RECOVERED"


class Alert(msgspec.Struct, frozen=True):
    """An alert as it is stored."""

    id: str
    tenant: TenantId
    kind: AlertKind
    about: str
    """The subject: a job's id or an endpoint. Empty if it is the tenant."""
    job_id: str
    """Empty if the subject is not a job."""
    job_name: str | None
    pool: str
    execution_id: str
    """The execution of the last observation. Empty if there is none."""
    endpoint: str | None
    message: str
    """The message of the last observation."""
    count: int
    """Number of observations."""
    first_ms: int
    last_ms: int
    acknowledged_ms: int | None = None
    acknowledged_by: str | None = None
    recovered_ms: int | None = None

    @property
    def status(self) -> AlertState:
        if self.recovered_ms is not None:
            return AlertState.RECOVERED
        return AlertState.OPEN if self.acknowledged_ms is None else AlertState.ACKNOWLEDGED


class AlertEvent(msgspec.Struct, frozen=True):
    """One event that people may want to be notified of: a new alert, another dead letter, or a recovery."""

    id: int
    tenant: str
    alert_id: str
    kind: AlertKind
    job_id: str
    """Empty if the subject is not a job."""
    job_name: str | None
    pool: str
    execution_id: str
    """Empty if there is none."""
    endpoint: str | None
    message: str
    count: int
    """Number of observations that the event stands for."""
    at_ms: int


class Observation(msgspec.Struct, frozen=True):
    """An observation to add to an open alert, or to open a new one with."""

    kind: AlertKind
    tenant: TenantId
    about: str
    message: str
    at_ms: int
    job_id: str = ""
    execution_id: str = ""
    endpoint: str | None = None
    """The endpoint, if it is not that of the job."""
    count: int = 1
    incident: int | None = None
    """The incident that reports it. The observation counts only if the same transaction deletes the incident."""
    dedup_key: str | None = None
    """Set for a condition that is observed again and again while it lasts. Keys of one subject and kind are ordered: the
    observation counts only if no equal or greater key was counted before."""


class MergedObservation(msgspec.Struct, frozen=True):
    """Observations of one subject and kind, combined. They open an alert or are added to an open one."""

    id: str
    """Id of the alert, if the observations open one."""
    tenant: TenantId
    kind: AlertKind
    about: str
    job_id: str
    execution_id: str
    endpoint: str | None
    message: str
    count: int
    first_ms: int
    last_ms: int
    dedup_key: str | None


def merge_observations(observations: Iterable[Observation]) -> list[MergedObservation]:
    """Combine the observations of each subject and kind. All processes use the same order, so that they cannot deadlock."""
    by_subject: dict[tuple[str, str, str], list[Observation]] = {}
    for each in observations:
        by_subject.setdefault(_subject(each), []).append(each)
    return [_merged(group) for _, group in sorted(by_subject.items())]


class TargetAlert(NamedTuple):
    """The alert that observations were added to."""

    tenant: str
    about: str
    kind: str
    id: str
    job_name: str | None
    pool: str
    endpoint: str | None


def events_of(
    observations: Iterable[Observation], merged: Iterable[MergedObservation], targets: Iterable[TargetAlert]
) -> list[AlertEvent]:
    """Return the events of some observations, by time: each new alert, and each observation of a kind in EACH_COUNTS.

    The store assigns the ids.
    """
    by_subject = {each[:3]: each for each in targets}
    sources: list[Observation | MergedObservation] = [each for each in observations if each.kind in EACH_COUNTS]
    sources += [each for each in merged if each.kind not in EACH_COUNTS and _has_opened(each, by_subject)]
    events = [_alert_event(each, by_subject[_subject(each)]) for each in sources if _subject(each) in by_subject]
    return sorted(events, key=lambda event: event.at_ms)


def recoveries(ended: Iterable[Alert], now_ms: int) -> list[AlertEvent]:
    """Return one event for each job that recovered. It belongs to the alert that was opened last."""
    by_job = {(alert.tenant, alert.job_id): alert for alert in sorted(ended, key=lambda alert: alert.id)}
    return [_recovery(alert, now_ms) for _, alert in sorted(by_job.items())]


def _recovery(alert: Alert, now_ms: int) -> AlertEvent:
    return AlertEvent(
        id=0,
        tenant=alert.tenant,
        alert_id=alert.id,
        kind=AlertKind.RECOVERED,
        job_id=alert.job_id,
        job_name=alert.job_name,
        pool=alert.pool,
        execution_id=alert.execution_id,
        endpoint=alert.endpoint,
        message=f"recovered from {alert.kind}: {alert.message}"[:MESSAGE_LIMIT],
        count=1,
        at_ms=now_ms,
    )


def _has_opened(merged: MergedObservation, targets: Mapping[tuple[str, str, str], TargetAlert]) -> bool:
    alert = targets.get(_subject(merged))
    return alert is not None and alert.id == merged.id


def _subject(one: Observation | MergedObservation) -> tuple[str, str, str]:
    return one.tenant, one.about, one.kind


def _alert_event(one: Observation | MergedObservation, alert: TargetAlert) -> AlertEvent:
    return AlertEvent(
        id=0,
        tenant=one.tenant,
        alert_id=alert.id,
        kind=one.kind,
        job_id=one.job_id,
        job_name=alert.job_name,
        pool=alert.pool,
        execution_id=one.execution_id,
        endpoint=alert.endpoint,
        message=one.message[:MESSAGE_LIMIT],
        count=one.count,
        at_ms=one.at_ms if isinstance(one, Observation) else one.last_ms,
    )


def _merged(group: list[Observation]) -> MergedObservation:
    first, last = group[0], group[-1]
    return MergedObservation(
        id=_id_of(first),
        tenant=last.tenant,
        kind=last.kind,
        about=last.about,
        job_id=last.job_id if last.about else "",
        execution_id=last.execution_id,
        endpoint=last.endpoint,
        message=last.message[:MESSAGE_LIMIT],
        count=sum(each.count for each in group),
        first_ms=min(each.at_ms for each in group),
        last_ms=max(each.at_ms for each in group),
        dedup_key=max((each.dedup_key for each in group if each.dedup_key is not None), default=None),
    )


def _id_of(first: Observation) -> ExecutionId:
    """Return an id that sorts by time and is unique: each incident and each dedup_key counts once."""
    subject = JobId(f"{first.tenant}|{first.about}")
    return execution_id(subject, first.at_ms, f"{first.kind}:{first.incident}:{first.dedup_key}")


class AlertFilter(msgspec.Struct, frozen=True):
    """Filter of a list of alerts. None matches every value."""

    unread: bool | None = None
    """True: only alerts that are not acknowledged. False: only acknowledged ones."""
    kind: AlertKind | None = None
    job_id: str | None = None
    until_ms: int | None = None
    """Only alerts that were last added to by this instant."""


class LateWork(msgspec.Struct, frozen=True):
    """Work that is due and has not started: a row on the timeline, or a dispatched execution."""

    due_ms: int
    key: str
    tenant: TenantId
    pool: str
    job_id: str
    """Empty if the job no longer exists."""
    execution_id: str
    """Empty if there is no execution yet."""
    early: bool
    """False if it may have to wait for other executions of its job or its concurrency key."""
    handed_out: bool = False
    """True if it is dispatched and a worker should have started it."""


class SlowRun(msgspec.Struct, frozen=True):
    """The oldest running execution of a job, with the longest duration of its last successes."""

    tenant: TenantId
    job_id: str
    execution_id: str
    pool: str
    started_ms: int
    successes: int
    """Number of successes that `longest_ms` is taken from."""
    longest_ms: int
