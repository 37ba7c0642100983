"""Items that a filter selects, page by page, and groups of items."""

import re
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from noonday.model.ids import JobId


class JobSelector(msgspec.Struct, frozen=True, kw_only=True):
    """Filter of jobs that may still fire. None matches every value."""

    type: str | None = None
    pool: str | None = None
    handler: str | None = None
    name: str | None = None
    tag: str | None = None
    unique_key: str | None = None
    state: str | None = None
    """ACTIVE or PAUSED."""


class DeadSelector(msgspec.Struct, frozen=True, kw_only=True):
    """Filter of open dead letters. None matches every value."""

    job_id: str | None = None
    pool: str | None = None
    handler: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    error: str | None = None
    """A part of the last error, written `type: message`. ASCII letters match in either case."""


class SelectedJob(msgspec.Struct, frozen=True):
    id: JobId
    name: str | None = None


class SelectedDeadLetter(msgspec.Struct, frozen=True):
    id: str
    job_id: JobId
    died_ms: int
    error_type: str = ""
    message: str = ""
    """The beginning of the message of the last error."""
    job_name: str | None = None

    @property
    def fingerprint(self) -> str:
        return fingerprint_of(self.error_type, self.message)


class JobSelection(NamedTuple):
    """A page of selected jobs."""

    jobs: list[SelectedJob]
    next: str | None
    """Where the next page begins. It may be set although this page is short, or even empty."""


class DeadSelection(NamedTuple):
    """A page of selected dead letters."""

    letters: list[SelectedDeadLetter]
    next: str | None
    """Where the next page begins. It may be set although this page is short, or even empty."""


class RunEnd(msgspec.Struct, frozen=True):
    """How far a run is."""

    id: str
    state: int
    attempt: int


_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'|`[^`]*`")
_VARIABLE = re.compile(r"\b(?:0x)?[0-9a-f]*\d[0-9a-f]*(?:[-.:][0-9a-f]+)*\b", re.IGNORECASE)
_BLANKS = re.compile(r"\s+")
LONGEST_MESSAGE = 500
"""Number of characters of a message that count."""


def pattern_of(error_type: str, message: str) -> str:
    """Return an error without what differs between its occurrences: quoted texts, numbers and ids."""
    text = _VARIABLE.sub("#", _QUOTED.sub("'…'", message[:LONGEST_MESSAGE]))
    return f"{error_type}: {_BLANKS.sub(' ', text).strip()}"


def fingerprint_of(error_type: str, message: str) -> str:
    """Return a short name of an error that all its occurrences share."""
    return blake2b(pattern_of(error_type, message).encode(), digest_size=8).hexdigest()
