"""Medians, spreads and ratios."""

from collections.abc import Sequence
from statistics import median

import msgspec


class Spread(msgspec.Struct, frozen=True):
    """Of several repetitions."""

    median: float
    least: float
    most: float
    count: int


def spread(values: Sequence[float | None]) -> Spread | None:
    """None if there is no value."""
    known = [value for value in values if value is not None]
    return Spread(median(known), min(known), max(known), len(known)) if known else None


def ratios(of: Sequence[float | None], to: Sequence[float | None]) -> Spread | None:
    """Of neighbours: each value divided by the one that was measured beside it. A pair that lacks a value, or whose
    divisor is 0, does not count."""
    return spread([one / other for one, other in zip(of, to, strict=False) if one is not None and other])
