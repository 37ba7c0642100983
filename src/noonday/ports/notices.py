"""The store as notices use it: alert preferences, and the notices that collect events until they are sent."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec

from noonday.model.alert import AlertKind
from noonday.model.ids import TenantId
from noonday.model.notice import Digest, DigestItem, Note, Open, Preference, folded
from noonday.model.stored import StoredDecoder
from noonday.ports.jobs import AuditEntry, Receipt


class Notices(ABC):
    """Store preferences and notices. A notice is open, then closed, then deleted.

    Only an open notice collects notes. Only a closed notice is sent.
    """

    @abstractmethod
    async def put_preference(
        self, preference: Preference, most: int, audit: AuditEntry, receipt: Receipt | None = None
    ) -> bool:
        """Store a preference. It replaces the one with the same id, whose `created_ms` is kept.

        Returns False if the tenant has `most` other preferences.
        """

    @abstractmethod
    async def delete_preference(
        self, tenant: TenantId, preference: str, audit: AuditEntry, receipt: Receipt | None = None
    ) -> bool:
        """Delete a preference and the notes that were collected for it. Returns False if it does not exist."""

    @abstractmethod
    async def find_preference(self, tenant: TenantId, preference: str) -> Preference | None: ...

    @abstractmethod
    async def preferences(self, tenants: Collection[str]) -> list[Preference]:
        """Return all preferences of these tenants, by tenant and id."""

    @abstractmethod
    async def take_in(self, events: Sequence[int], notes: Sequence[Note], notices: Sequence[Open]) -> int:
        """Delete events and collect their notes, in one transaction. Returns how many of the events still existed.

        If several processes take in the same event, exactly one wins; the others' notes are dropped. A note goes to the open
        notice of its preference. If there is none, the one in `notices` is opened.
        """

    @abstractmethod
    async def close_due(self, now_ms: int, limit: int) -> list[Open]:
        """Close the notices that are due. Returns all closed notices that are not deleted, oldest first."""

    @abstractmethod
    async def next_due_ms(self) -> int | None:
        """Return when the next open notice is due."""

    @abstractmethod
    async def digest(self, notice: Open, subjects: int) -> Digest:
        """Return the counts of everything that a notice collected, and the items of its first `subjects` subjects."""

    @abstractmethod
    async def drop(self, notice: str) -> None:
        """Delete a notice that was sent or has no recipient. Does nothing if it does not exist."""


class _PreferenceSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """The fields of a preference that have no column of their own."""

    user: str
    kinds: tuple[AlertKind, ...]
    digest_ms: int
    pools: tuple[str, ...] = ()
    job_ids: tuple[str, ...] = ()
    enabled: bool = True


_read_spec = StoredDecoder(_PreferenceSpec).decode

PreferenceRow = tuple[str, str, str, bytes, int, int]
"""(tenant, id, spec as JSON, channel, created_ms, updated_ms)."""


def row_of(preference: Preference) -> PreferenceRow:
    """Return the stored row of a preference."""
    one = preference
    spec = _PreferenceSpec(one.user, one.kinds, one.digest_ms, one.pools, one.job_ids, one.enabled)
    return one.tenant, one.id, msgspec.json.encode(spec).decode(), one.channel, one.created_ms, one.updated_ms


def preference_of(row: Iterable[Any]) -> Preference:
    """Return the preference of a stored row."""
    tenant, name, text, channel, created_ms, updated_ms = row
    spec = _read_spec(text)
    return Preference(
        tenant=tenant,
        id=name,
        channel=bytes(channel),
        created_ms=created_ms,
        updated_ms=updated_ms,
        **{field: getattr(spec, field) for field in spec.__struct_fields__},
    )


Whose = tuple[str, str]
"""(tenant, preference)."""
DigestItemRow = tuple[Any, ...]


def gathered(
    notes: Iterable[Note], notices: Iterable[Open], taken: Collection[int]
) -> tuple[list[Open], list[tuple[Whose, DigestItemRow]]]:
    """Return the notices that must be open for the events that were taken, and the items to add to them.

    Both are in an order that all processes keep, so that their transactions cannot deadlock.
    """
    lines = folded(note for note in notes if note.event.id in taken)
    noted = {(tenant, preference) for tenant, preference, _, _ in lines}
    opening = sorted((each for each in notices if (each.tenant, each.preference) in noted), key=_whose)
    return opening, [((key[0], key[1]), msgspec.structs.astuple(line)) for key, line in lines.items()]


def digest_of(
    notice: Open, counted: Sequence[tuple[str, int, int, int]], subjects: int, lines: Iterable[Iterable[Any]]
) -> Digest:
    """Return the digest of a notice. `counted` has (kind, count, first_ms, last_ms) rows."""
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


def _line(about: str, kind: str, *rest: Any) -> DigestItem:
    return DigestItem(about, AlertKind(kind), *rest)


def _whose(notice: Open) -> Whose:
    return notice.tenant, notice.preference
