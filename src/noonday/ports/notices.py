"""Who wants to be told of what, and what is gathered until they are: the store's side of notices."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec

from noonday.model.alert import AlertKind
from noonday.model.ids import TenantId
from noonday.model.notice import Digest, Line, Note, Open, Preference, folded
from noonday.model.stored import StoredDecoder
from noonday.ports.jobs import AuditEntry, Receipt


class Notices(ABC):
    """A notice is open, then closed, then gone. Only what is open gathers; only what is closed is sent."""

    @abstractmethod
    async def put_preference(
        self, preference: Preference, most: int, audit: AuditEntry, receipt: Receipt | None = None
    ) -> bool:
        """Keep it, in place of one of the same id, whose `created_ms` stays. False if the tenant has `most` others."""

    @abstractmethod
    async def delete_preference(
        self, tenant: TenantId, preference: str, audit: AuditEntry, receipt: Receipt | None = None
    ) -> bool:
        """With what was gathered for it. False if there is none."""

    @abstractmethod
    async def find_preference(self, tenant: TenantId, preference: str) -> Preference | None: ...

    @abstractmethod
    async def preferences(self, tenants: Collection[str]) -> list[Preference]:
        """Of all these tenants, by tenant and id."""

    @abstractmethod
    async def take_in(self, events: Sequence[int], notes: Sequence[Note], notices: Sequence[Open]) -> int:
        """Take events away and gather the notes of them, in one transaction. Answers how many were there.

        Of several who take the same event one has it, and the notes of the others are nothing. Notes go to the notice
        that is open for their preference; where none is, to the one in `notices`, which is opened.
        """

    @abstractmethod
    async def close_due(self, now_ms: int, limit: int) -> list[Open]:
        """Close what is due, and answer it after those that were closed before and are still here: the oldest first."""

    @abstractmethod
    async def next_due_ms(self) -> int | None:
        """When the next one that is open is due."""

    @abstractmethod
    async def digest(self, notice: Open, subjects: int) -> Digest:
        """Everything that was gathered, counted, with the lines of the first so many things it happened to."""

    @abstractmethod
    async def drop(self, notice: str) -> None:
        """It was sent, or nobody wants it. One that is gone is dropped without a word."""


class _Said(msgspec.Struct, frozen=True, omit_defaults=True):
    """What of a preference has no column of its own."""

    user: str
    kinds: tuple[AlertKind, ...]
    digest_ms: int
    pools: tuple[str, ...] = ()
    job_ids: tuple[str, ...] = ()
    enabled: bool = True


_read_said = StoredDecoder(_Said).decode

PreferenceRow = tuple[str, str, str, bytes, int, int]
"""(tenant, id, said, channel, created, updated)."""


def row_of(preference: Preference) -> PreferenceRow:
    one = preference
    said = _Said(one.user, one.kinds, one.digest_ms, one.pools, one.job_ids, one.enabled)
    return one.tenant, one.id, msgspec.json.encode(said).decode(), one.channel, one.created_ms, one.updated_ms


def preference_of(row: Iterable[Any]) -> Preference:
    tenant, name, text, channel, created_ms, updated_ms = row
    said = _read_said(text)
    return Preference(
        tenant=tenant,
        id=name,
        channel=bytes(channel),
        created_ms=created_ms,
        updated_ms=updated_ms,
        **{field: getattr(said, field) for field in said.__struct_fields__},
    )


Whose = tuple[str, str]
"""(tenant, preference)."""
LineRow = tuple[Any, ...]


def gathered(
    notes: Iterable[Note], notices: Iterable[Open], taken: Collection[int]
) -> tuple[list[Open], list[tuple[Whose, LineRow]]]:
    """Of the events that were taken: the notices that must be open, and the lines they get. Both in an order that everybody
    keeps to, so that nobody waits for somebody who waits for them."""
    lines = folded(note for note in notes if note.event.id in taken)
    wanted = {(tenant, preference) for tenant, preference, _, _ in lines}
    opening = sorted((each for each in notices if (each.tenant, each.preference) in wanted), key=_whose)
    return opening, [((key[0], key[1]), msgspec.structs.astuple(line)) for key, line in lines.items()]


def digest_of(
    notice: Open, counted: Sequence[tuple[str, int, int, int]], subjects: int, lines: Iterable[Iterable[Any]]
) -> Digest:
    """`counted`: kind, how often, when first, when last."""
    return Digest(
        notice.id,
        notice.tenant,
        notice.preference,
        {AlertKind(kind): int(count) for kind, count, _, _ in counted},
        subjects,
        min(first_ms for _, _, first_ms, _ in counted),
        max(last_ms for _, _, _, last_ms in counted),
        tuple(_line(*row) for row in lines),
    )


def _line(about: str, kind: str, *rest: Any) -> Line:
    return Line(about, AlertKind(kind), *rest)


def _whose(notice: Open) -> Whose:
    return notice.tenant, notice.preference
