"""Aggregation of alerts, which keeps the inbox readable when many jobs of a tenant fail at once."""

from collections.abc import Iterable, Sequence

import msgspec

from noonday.model.alert import Observation

HOUR_MS = 3_600_000
TenantKind = tuple[str, str]
"""(tenant, kind)."""


class AlertAggregator:
    """Limits how many subjects of one kind a tenant may have alerts about in an hour; all others share one alert."""

    def __init__(self, max_subjects: int) -> None:
        self._max_subjects = max_subjects
        self._hour = 0
        self._subjects: dict[TenantKind, set[str]] = {}

    def aggregate(self, observations: Iterable[Observation], now_ms: int) -> list[Observation]:
        """Return the observations, with those beyond the limit changed into observations about their tenant.

        One-time observations beyond the limit stay separate. Lasting ones, which have a dedup key, become one for each
        tenant and kind.
        """
        self._begin_hour(now_ms // HOUR_MS)
        result: list[Observation] = []
        lasting: dict[TenantKind, list[Observation]] = {}
        for observation in observations:
            if self._is_within_limit(observation):
                result.append(observation)
            elif observation.dedup_key is None:
                message = f"and others, the last one {observation.about}: {observation.message}"
                result.append(_about_tenant(observation, message))
            else:
                lasting.setdefault((observation.tenant, observation.kind), []).append(observation)
        return result + [self._merged(others) for others in lasting.values()]

    def _begin_hour(self, hour: int) -> None:
        if hour != self._hour:
            self._hour = hour
            self._subjects.clear()

    def _is_within_limit(self, observation: Observation) -> bool:
        subjects = self._subjects.setdefault((observation.tenant, observation.kind), set())
        if observation.about not in subjects and len(subjects) >= self._max_subjects:
            return False
        subjects.add(observation.about)
        return True

    def _merged(self, others: Sequence[Observation]) -> Observation:
        """Merge lasting observations. The hour is the dedup key, so the merged alert is raised once an hour."""
        first = others[0]
        merged = _about_tenant(first, f"and {len(others):,} others, the first one {first.about}: {first.message}")
        return msgspec.structs.replace(merged, count=len(others), dedup_key=f"{self._hour:015d}")


def _about_tenant(observation: Observation, message: str) -> Observation:
    return msgspec.structs.replace(observation, about="", message=message)
