"""Time zones, which always come from the `tzdata` package, so that nodes with the same packages agree on every timeline."""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from noonday.model.errors import InvalidInput, nearest

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@lru_cache(maxsize=1024)
def zone(name: str) -> ZoneInfo:
    """Return the zone with a name. Raises `InvalidInput` with the nearest name if there is none."""
    if name not in _zone_names():
        raise InvalidInput.of(
            "/timezone",
            f'there is no time zone "{name[:64]}"',
            name[:64],
            allowed="UTC or an IANA name such as Europe/Berlin",
            nearest=_nearest_zone(name[:64]),
        )
    with _tzdata().joinpath("zoneinfo", *name.split("/")).open("rb") as data:
        return ZoneInfo.from_file(data, key=name)


def is_zone(name: str) -> bool:
    """Return whether a zone has this name."""
    return name in _zone_names()


def local_text(at_ms: int, timezone: str) -> str:
    """Return the ISO 8601 wall time with its offset: `2026-03-08T03:30:00-04:00`."""
    local = (_EPOCH + timedelta(milliseconds=at_ms)).astimezone(zone(timezone))
    return local.isoformat(timespec="milliseconds" if at_ms % 1000 else "seconds")


def tzdata_version() -> str:
    """Return the version of the zone data in use, such as `2026a`. When it changes, stored fire times may be wrong."""
    return str(import_module("tzdata").IANA_VERSION)


def _tzdata() -> "Traversable":
    from importlib.resources import files  # takes 10 ms, and most commands need no zone

    return files("tzdata")


@lru_cache(maxsize=1)
def _zone_names() -> frozenset[str]:
    return frozenset(_tzdata().joinpath("zones").read_text("ascii").split())


@lru_cache(maxsize=1)
def _likely_zones() -> tuple[list[str], dict[str, str]]:
    """Return the zones to suggest, and the same by their lower-case names and cities."""
    # The sign of Etc/GMT+2 is the opposite of what people expect, so it is not suggested.
    known = sorted(name for name in _zone_names() if not name.startswith("Etc/GMT"))
    # If two zones have the same city, the shorter name is the usual one.
    cities = {name.rpartition("/")[2].lower(): name for name in sorted(known, key=len, reverse=True)}
    return known, cities | {name.lower(): name for name in known}


def _nearest_zone(name: str) -> str | None:
    known, folded = _likely_zones()
    spelled = name.strip().replace(" ", "_")
    # Three letters always resemble three others: PST is not EST.
    return folded.get(spelled.lower()) or (nearest(spelled, known) if len(spelled) > 4 else None)
