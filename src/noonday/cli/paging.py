"""Limits of lists that the API returns in pages."""

from collections.abc import Iterator
from itertools import islice
from typing import TypeVar

T = TypeVar("T")
PAGE = 500


def first_of(items: Iterator[T], limit: int | None) -> tuple[list[T], bool]:
    """Return the first items, and whether there are more."""
    taken = list(islice(items, limit))
    return taken, limit is not None and next(items, None) is not None


def page_size(limit: int, no_limit: bool) -> int:
    return PAGE if no_limit else min(PAGE, limit + 1)
