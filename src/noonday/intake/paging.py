"""Size limit of pages."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from noonday.model.execution import Execution

T = TypeVar("T")
PAGE_BYTES = 4 * 1024 * 1024
"""Maximum size of the encrypted content of one page of a list. A single larger row is still returned."""


def within_page(rows: Sequence[T], size_of: Callable[[T], int]) -> Sequence[T]:
    """Return the first rows that have at most PAGE_BYTES together, and at least one."""
    total = 0
    for number, row in enumerate(rows):
        total += size_of(row)
        if total > PAGE_BYTES and number:
            return rows[:number]
    return rows


def bytes_of(row: Execution) -> int:
    """Return the size of an execution's encrypted content and of its failure."""
    return len(row.progress or b"") + len(row.result or b"") + len(row.failure or "")
