"""Notices: the preferences that choose alert events, and the digests that are sent to people."""

from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec

from noonday.model.alert import AlertEvent, AlertKind
from noonday.model.ids import TenantId

USUAL_KINDS = (AlertKind.EXHAUSTED, AlertKind.STOPPED, AlertKind.DISABLED, AlertKind.MISSED, AlertKind.RECOVERED)
USUAL_DIGEST_SEC, LONGEST_DIGEST_SEC = 300, 86_400
LONGEST_MESSAGE = 500
"""Maximum length of an event's message in a notice, in characters."""


class ChannelType(StrEnum):
    """The kind of a channel."""

    EMAIL = "EMAIL"
    WEBHOOK = "WEBHOOK"
    PUSH = "PUSH"


class Recipient(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The channel and the address of a person: `address`, or `url` for a webhook."""

    type: ChannelType
    address: str | None = None
    url: str | None = None


class Preference(msgspec.Struct, frozen=True):
    """The events that a person wants to be notified of, and the channel."""

    tenant: TenantId
    id: str
    user: str
    kinds: tuple[AlertKind, ...]
    digest_ms: int
    """Milliseconds for which events are collected before they are sent. 0 sends them at once."""
    pools: tuple[str, ...]
    """Only events of these pools. Empty means all."""
    job_ids: tuple[str, ...]
    """Only events of these jobs. Empty means all."""
    enabled: bool
    channel: bytes
    """Ciphertext of a Recipient. The URL of a webhook may be a secret in itself."""
    created_ms: int
    updated_ms: int

    def wants(self, event: AlertEvent) -> bool:
        """Return whether the preference selects an event."""
        return (
            self.enabled
            and event.kind in self.kinds
            and (not self.pools or event.pool in self.pools)
            and (not self.job_ids or event.job_id in self.job_ids)
        )


class SelectedEvent(msgspec.Struct, frozen=True):
    """An event that a preference selects."""

    event: AlertEvent
    preference: str

    @property
    def about(self) -> str:
        """The subject of the event: a job, an endpoint, or else its alert."""
        return self.event.job_id or self.event.endpoint or self.event.alert_id


class OpenNotice(msgspec.Struct, frozen=True):
    """A notice that collects events until it is due."""

    id: str
    tenant: TenantId
    preference: str
    due_ms: int


class DigestItem(msgspec.Struct, frozen=True):
    """The events of one subject and kind in a notice."""

    about: str
    kind: AlertKind
    count: int
    first_ms: int
    last_ms: int
    alert_id: str
    job_id: str
    job_name: str | None
    pool: str
    execution_id: str
    endpoint: str | None
    message: str
    """The message of the last event."""

    def and_then(self, later: "DigestItem") -> "DigestItem":
        """Return this item combined with a later one of the same subject and kind."""
        return msgspec.structs.replace(
            later,
            count=self.count + later.count,
            first_ms=min(self.first_ms, later.first_ms),
            last_ms=max(self.last_ms, later.last_ms),
        )


class Digest(msgspec.Struct, frozen=True):
    """The content of one notice."""

    id: str
    tenant: TenantId
    preference: str
    counts: dict[AlertKind, int] = {}
    """Number of events of each kind. Empty in a test notice."""
    subjects: int = 0
    """Number of subjects that the events are about."""
    first_ms: int = 0
    last_ms: int = 0
    lines: tuple[DigestItem, ...] = ()
    """The items of the first subjects."""

    @property
    def omitted(self) -> int:
        """The number of subjects that have no item."""
        return self.subjects - len({line.about for line in self.lines})


class Notice(msgspec.Struct, frozen=True):
    """The text of a digest for one person, as a channel sends it."""

    id: str
    """The id of the notice. It is the same at every attempt."""
    tenant: str
    preference: str
    user: str
    address: str
    subject: str
    text: str
    at_ms: int


def single_line(text: str) -> str:
    """Replace line breaks and control characters by blanks, so that no text adds a header or a line or controls a terminal."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def select_events(events: Iterable[AlertEvent], preferences: Sequence[Preference]) -> list[SelectedEvent]:
    """Return each event once for each preference of its tenant that selects it."""
    by_tenant: dict[str, list[Preference]] = {}
    for preference in preferences:
        by_tenant.setdefault(preference.tenant, []).append(preference)
    return [
        SelectedEvent(event, preference.id)
        for event in events
        for preference in by_tenant.get(event.tenant, ())
        if preference.wants(event)
    ]


def digest_items(selected: Iterable[SelectedEvent]) -> dict[tuple[str, str, str, AlertKind], DigestItem]:
    """Combine selected events into items by (tenant, preference, subject, kind), always in the same order."""
    lines: dict[tuple[str, str, str, AlertKind], DigestItem] = {}
    for each in sorted(selected, key=lambda each: each.event.id):
        key = (each.event.tenant, each.preference, each.about, each.event.kind)
        line = _line(each)
        lines[key] = lines[key].and_then(line) if key in lines else line
    return dict(sorted(lines.items()))


def _line(selected: SelectedEvent) -> DigestItem:
    one = selected.event
    return DigestItem(
        about=selected.about,
        kind=one.kind,
        count=one.count,
        first_ms=one.at_ms,
        last_ms=one.at_ms,
        alert_id=one.alert_id,
        job_id=one.job_id,
        job_name=one.job_name,
        pool=one.pool,
        execution_id=one.execution_id,
        endpoint=one.endpoint,
        message=one.message[:LONGEST_MESSAGE],
    )
