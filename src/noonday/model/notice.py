"""Who wants to be told of what, and what they are told."""

from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec

from noonday.model.alert import AlertEvent, AlertKind
from noonday.model.ids import TenantId

USUAL_KINDS = (AlertKind.EXHAUSTED, AlertKind.STOPPED, AlertKind.DISABLED, AlertKind.MISSED, AlertKind.RECOVERED)
USUAL_DIGEST_SEC, LONGEST_DIGEST_SEC = 300, 86_400
LONGEST_MESSAGE = 500
"""How much of what was said of a failure is kept for a notice."""


class ChannelType(StrEnum):
    EMAIL = "EMAIL"
    WEBHOOK = "WEBHOOK"
    PUSH = "PUSH"


class Recipient(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """By which channel somebody is reached, and where: `address`, or of a webhook its `url`."""

    type: ChannelType
    address: str | None = None
    url: str | None = None


class Preference(msgspec.Struct, frozen=True):
    """What somebody wants to be told of, by which channel."""

    tenant: TenantId
    id: str
    user: str
    kinds: tuple[AlertKind, ...]
    digest_ms: int
    """How long what happens is gathered before it is told; 0: not at all."""
    pools: tuple[str, ...]
    """Only what happens in these; empty: in all."""
    job_ids: tuple[str, ...]
    """Only what happens to these; empty: to all."""
    enabled: bool
    channel: bytes
    """Ciphertext of a Recipient: the URL of a webhook may be all that it takes to use it."""
    created_ms: int
    updated_ms: int

    def wants(self, event: AlertEvent) -> bool:
        return (
            self.enabled
            and event.kind in self.kinds
            and (not self.pools or event.pool in self.pools)
            and (not self.job_ids or event.job_id in self.job_ids)
        )


class Note(msgspec.Struct, frozen=True):
    """Something that is to be told under a preference."""

    event: AlertEvent
    preference: str

    @property
    def about(self) -> str:
        """What it happened to."""
        return self.event.job_id or self.event.endpoint or self.event.alert_id


class Open(msgspec.Struct, frozen=True):
    """A notice that gathers notes until it is due."""

    id: str
    tenant: TenantId
    preference: str
    due_ms: int


class Line(msgspec.Struct, frozen=True):
    """What happened to one thing, in one kind, since the last notice."""

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
    """Of the last one."""

    def and_then(self, later: "Line") -> "Line":
        return msgspec.structs.replace(
            later,
            count=self.count + later.count,
            first_ms=min(self.first_ms, later.first_ms),
            last_ms=max(self.last_ms, later.last_ms),
        )


class Digest(msgspec.Struct, frozen=True):
    """Everything that one notice tells."""

    id: str
    tenant: TenantId
    preference: str
    counts: dict[AlertKind, int] = {}
    """How often each kind happened; empty in a test."""
    subjects: int = 0
    """To how many things."""
    first_ms: int = 0
    last_ms: int = 0
    lines: tuple[Line, ...] = ()
    """Of the first of them."""

    @property
    def untold(self) -> int:
        """How many things have no line."""
        return self.subjects - len({line.about for line in self.lines})


class Notice(msgspec.Struct, frozen=True):
    """A digest in words, for one person, as a channel gets it."""

    id: str
    """The same at every attempt."""
    tenant: str
    preference: str
    user: str
    address: str
    subject: str
    text: str
    at_ms: int


def notes_of(events: Iterable[AlertEvent], preferences: Sequence[Preference]) -> list[Note]:
    """Who is to be told of what."""
    by_tenant: dict[str, list[Preference]] = {}
    for preference in preferences:
        by_tenant.setdefault(preference.tenant, []).append(preference)
    return [
        Note(event, preference.id)
        for event in events
        for preference in by_tenant.get(event.tenant, ())
        if preference.wants(event)
    ]


def folded(notes: Iterable[Note]) -> dict[tuple[str, str, str, AlertKind], Line]:
    """By tenant, preference, what it is about and kind: notes of the same are one line. In an order that is always the same."""
    lines: dict[tuple[str, str, str, AlertKind], Line] = {}
    for note in sorted(notes, key=lambda note: note.event.id):
        key = (note.event.tenant, note.preference, note.about, note.event.kind)
        line = _line(note)
        lines[key] = lines[key].and_then(line) if key in lines else line
    return dict(sorted(lines.items()))


def _line(note: Note) -> Line:
    one = note.event
    return Line(
        about=note.about,
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
