"""Stored forms of notification preferences and digests."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from noonday.model.alert import AlertKind
from noonday.model.notice import Digest, DigestItem, OpenNotice, Preference, SelectedEvent, digest_items
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


def preference_of(row: Mapping[str, Any]) -> Preference:
    """Return the preference of a stored row: tenant, id, spec as JSON, channel, created_ms, updated_ms."""
    spec = _read_spec(row["spec"])
    return Preference(
        tenant=row["tenant"],
        id=row["id"],
        channel=bytes(row["channel"]),
        created_ms=row["created_ms"],
        updated_ms=row["updated_ms"],
        **{field: getattr(spec, field) for field in spec.__struct_fields__},
    )


PreferenceKey = tuple[str, str]
"""(tenant, preference)."""


def items_to_add(
    selected: Iterable[SelectedEvent], notices: Iterable[OpenNotice], taken: Collection[int]
) -> tuple[list[OpenNotice], list[tuple[PreferenceKey, DigestItem]]]:
    """Return the notices that must be open for the events that were taken, and the items to add to them.

    Both are in an order that all processes keep, so that their transactions cannot deadlock.
    """
    lines = digest_items(each for each in selected if each.event.id in taken)
    with_events = {(tenant, preference) for tenant, preference, _, _ in lines}
    opening = sorted((each for each in notices if (each.tenant, each.preference) in with_events), key=_preference_key)
    return opening, [((key[0], key[1]), line) for key, line in lines.items()]


def digest_of(
    notice: OpenNotice, counted: Sequence[Mapping[str, Any]], subjects: int, lines: Iterable[Mapping[str, Any]]
) -> Digest:
    """Return the digest of a notice. `counted` has rows of kind, count, first_ms and last_ms; `lines` has rows of items."""
    return Digest(
        notice.id,
        notice.tenant,
        notice.preference,
        {AlertKind(row["kind"]): int(row["count"]) for row in counted},
        subjects,
        min(row["first_ms"] for row in counted),
        max(row["last_ms"] for row in counted),
        tuple(msgspec.convert(dict(row), DigestItem) for row in lines),
    )


def _preference_key(notice: OpenNotice) -> PreferenceKey:
    return notice.tenant, notice.preference
