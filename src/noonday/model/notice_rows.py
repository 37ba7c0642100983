"""Stored forms of notification preferences and digests."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec

from noonday.model.alert import AlertKind
from noonday.model.notice import Digest, DigestItem, Note, Open, Preference, folded
from noonday.model.stored import StoredDecoder


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
