"""What people should know of: alerts, and the events that open and close them.

An alert is about one thing (a job, an endpoint, a tenant) and of one kind, and as long as it is open more of the same only
count. It is open until it is acknowledged or the job succeeds again; if it recurs after that, another one is opened.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

import msgspec

from noonday.model.ids import ExecutionId, JobId, TenantId, execution_id

GIVEN_UP = "GIVEN_UP"
"""The kind of an incident of which there is no execution: a time of a job was decided against."""
MESSAGE_LIMIT = 1_000


class AlertKind(StrEnum):
    FAILED = "FAILED"
    """The first attempt of an execution failed; it is tried again."""
    EXHAUSTED = "EXHAUSTED"
    """An execution has become a dead letter."""
    STOPPED = "STOPPED"
    """The receiver wants no more calls."""
    DISABLED = "DISABLED"
    """An endpoint failed for so long that it is not called any more."""
    MISSED = "MISSED"
    """It was expected to run, and did not."""
    SLOW = "SLOW"
    """It runs far longer than usual."""
    RECOVERED = "RECOVERED"
    """It works again. Never an alert of its own."""


ENDED_BY_SUCCESS = frozenset({AlertKind.FAILED, AlertKind.EXHAUSTED, AlertKind.MISSED, AlertKind.SLOW})
EACH_COUNTS = frozenset({AlertKind.EXHAUSTED, AlertKind.DISABLED})
"""Kinds of which each one is an event, also if its alert is open already: digests count dead letters, and an endpoint that is
disabled again was enabled by somebody in between."""


class AlertState(StrEnum):
    OPEN = "OPEN"
    ACKNOWLEDGED = "ACKNOWLEDGED"
    RECOVERED = "RECOVERED"


class Alert(msgspec.Struct, frozen=True):
    id: str
    tenant: TenantId
    kind: AlertKind
    about: str
    """The job's id, or the endpoint; empty, if it is about the tenant."""
    job_id: str
    """Empty, if it is not about a job."""
    job_name: str | None
    pool: str
    execution_id: str
    """Of the last one; empty, if there is none."""
    endpoint: str | None
    message: str
    """What was said the last time."""
    count: int
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
    """One thing that people may want to be told of: an alert was opened, a dead letter came, or it works again."""

    id: int
    tenant: str
    alert_id: str
    kind: AlertKind
    job_id: str
    """Empty, if it is not about a job."""
    job_name: str | None
    pool: str
    execution_id: str
    """Empty, if there is none."""
    endpoint: str | None
    message: str
    count: int
    """How many of them it stands for."""
    at_ms: int


class Observation(msgspec.Struct, frozen=True):
    """Something that was seen and is to be taken in: by an alert that is open, or by a new one."""

    kind: AlertKind
    tenant: TenantId
    about: str
    message: str
    at_ms: int
    job_id: str = ""
    execution_id: str = ""
    endpoint: str | None = None
    """If it is not that of the job."""
    count: int = 1
    incident: int | None = None
    """The incident that tells of it. It is taken in only by whoever takes the incident away."""
    dedup_key: str | None = None
    """Of what is seen again and again as long as it lasts: its place in the order of such things about the same. It is taken in
    only if nothing of this place, or behind it, was before."""


class Raised(msgspec.Struct, frozen=True):
    """Sightings of the same, as what an alert is opened with, or grows by."""

    id: str
    """What the alert is called if it is opened by this."""
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


def raised_by(observations: Iterable[Observation]) -> list[Raised]:
    """One for each thing and kind, in an order that everybody keeps to."""
    by_subject: dict[tuple[str, str, str], list[Observation]] = {}
    for each in observations:
        by_subject.setdefault(_subject(each), []).append(each)
    return [_raised(seen) for _, seen in sorted(by_subject.items())]


class Kept(NamedTuple):
    """The alert that took something in."""

    tenant: str
    about: str
    kind: str
    id: str
    job_name: str | None
    pool: str
    endpoint: str | None


def events_of(observations: Iterable[Observation], raised: Iterable[Raised], kept: Iterable[Kept]) -> list[AlertEvent]:
    """What people may want to be told of it all, in order: that alerts were opened, and each of those kinds that count. The ids
    are for the store to give."""
    by_subject = {each[:3]: each for each in kept}
    of_all: list[Observation | Raised] = [each for each in observations if each.kind in EACH_COUNTS]
    of_all += [each for each in raised if each.kind not in EACH_COUNTS and _has_opened(each, by_subject)]
    told = [_alert_event(each, by_subject[_subject(each)]) for each in of_all if _subject(each) in by_subject]
    return sorted(told, key=lambda event: event.at_ms)


def recoveries(ended: Iterable[Alert], now_ms: int) -> list[AlertEvent]:
    """One for each job, whatever it recovered from; it belongs to the alert that was opened last."""
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
        message=f"it works again, after {alert.kind}: {alert.message}"[:MESSAGE_LIMIT],
        count=1,
        at_ms=now_ms,
    )


def _has_opened(raised: Raised, kept: Mapping[tuple[str, str, str], Kept]) -> bool:
    alert = kept.get(_subject(raised))
    return alert is not None and alert.id == raised.id


def _subject(one: Observation | Raised) -> tuple[str, str, str]:
    return one.tenant, one.about, one.kind


def _alert_event(one: Observation | Raised, alert: Kept) -> AlertEvent:
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


def _raised(seen: list[Observation]) -> Raised:
    first, last = seen[0], seen[-1]
    return Raised(
        id=_id_of(first),
        tenant=last.tenant,
        kind=last.kind,
        about=last.about,
        job_id=last.job_id if last.about else "",
        execution_id=last.execution_id,
        endpoint=last.endpoint,
        message=last.message[:MESSAGE_LIMIT],
        count=sum(each.count for each in seen),
        first_ms=min(each.at_ms for each in seen),
        last_ms=max(each.at_ms for each in seen),
        dedup_key=max((each.dedup_key for each in seen if each.dedup_key is not None), default=None),
    )


def _id_of(first: Observation) -> ExecutionId:
    """Sorts by time, and nothing else can have it: an incident and an dedup_key are taken in once."""
    subject = JobId(f"{first.tenant}|{first.about}")
    return execution_id(subject, first.at_ms, f"{first.kind}:{first.incident}:{first.dedup_key}")
