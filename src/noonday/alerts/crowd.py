"""Keeps an inbox readable: what goes wrong with very many jobs of a tenant at once is one alert about the tenant."""

from collections.abc import Iterable, Sequence

import msgspec

from noonday.model.alert import Sighting

HOUR_MS = 3_600_000
Whose = tuple[str, str]
"""(tenant, kind)."""


class Crowd:
    """So many things of one kind a tenant may have alerts about in an hour; of the others one alert tells."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._hour = 0
        self._known: dict[Whose, set[str]] = {}

    def thin_out(self, sightings: Iterable[Sighting], now_ms: int) -> list[Sighting]:
        """The same sightings; those beyond the limit are about their tenant."""
        self._begin_hour(now_ms // HOUR_MS)
        kept: list[Sighting] = []
        lasting: dict[Whose, list[Sighting]] = {}
        for each in sightings:
            if self._is_known(each):
                kept.append(each)
            elif each.occasion is None:
                kept.append(_about_tenant(each, f"and others, the last one {each.about}: {each.message}"))
            else:
                lasting.setdefault((each.tenant, each.kind), []).append(each)
        return kept + [self._together(others) for others in lasting.values()]

    def _begin_hour(self, hour: int) -> None:
        if hour != self._hour:
            self._hour = hour
            self._known.clear()

    def _is_known(self, sighting: Sighting) -> bool:
        known = self._known.setdefault((sighting.tenant, sighting.kind), set())
        if sighting.about not in known and len(known) >= self._most:
            return False
        known.add(sighting.about)
        return True

    def _together(self, others: Sequence[Sighting]) -> Sighting:
        """What lasts is seen all the time: it is said once an hour."""
        first = others[0]
        told = _about_tenant(first, f"and {len(others):,} others, the first one {first.about}: {first.message}")
        return msgspec.structs.replace(told, count=len(others), occasion=f"{self._hour:015d}")


def _about_tenant(sighting: Sighting, message: str) -> Sighting:
    return msgspec.structs.replace(sighting, about="", message=message)
