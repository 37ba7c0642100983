"""Every error that Noonday raises, in one tree.

Each class has a stable `code`. Clients match on the code, never on the text. `api/errors.py` is the only map to HTTP.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from difflib import get_close_matches
from heapq import nlargest
from typing import Any

import msgspec


class Flaw(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One flaw of an input: its position, its value, and what is allowed."""

    pointer: str
    """JSON pointer to the invalid value, such as `/retryPolicy/maxAttempts`. Empty for the whole input."""
    detail: str
    value: Any = None
    allowed: Any = None
    nearest: str | None = None


def pointer_to(*steps: str | int) -> str:
    """Return the JSON pointer to a value: the names and indexes that lead to it."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)


def sentence_on(name: str, detail: str) -> str:
    """Return a detail that lacks its subject as a sentence with the name: `every must be at least 1 s`.

    Any other detail is a sentence already, and is returned as it is.
    """
    if detail.startswith(("must ", "needs ")):
        return f"{name} {detail}"
    return f"{name}: {detail}" if detail.startswith("expected ") else detail


def dotted(pointer: str) -> str:
    """Return a JSON pointer as people write it: `retryPolicy.maxAttempts`."""
    return pointer[1:].replace("/", ".").replace("~1", "/").replace("~0", "~")


class NoondayError(Exception):
    """The root of all errors. No other exception of Noonday crosses a package boundary."""

    code = "error"

    def __init__(self, detail: str = "", **context: Any) -> None:
        super().__init__(detail)
        self.detail = detail
        self.context = context
        """Facts for programs. They become extension members of the problem details."""


FLAWS_OF_JOB = 20
FLAWS_OF_BATCH = 100


class InvalidInput(NoondayError):
    """The input is not valid. Has every flaw that was found."""

    code = "invalid-input"

    def __init__(
        self, detail: str, flaws: Sequence[Flaw] = (), *, most_flaws: int = FLAWS_OF_JOB, **context: Any
    ) -> None:
        super().__init__(detail, **context)
        self.flaws = tuple(flaws)
        self.most_flaws = most_flaws
        """Maximum number of flaws to report. The others are only counted."""

    @classmethod
    def of(cls, pointer: str, detail: str, value: Any = None, **more: Any) -> "InvalidInput":
        return cls(detail, [Flaw(pointer, detail, value, **more)])


class MalformedBody(NoondayError):
    """The text is not JSON. Names the position of the error."""

    code = "malformed-body"


class PayloadTooLarge(NoondayError):
    code = "payload-too-large"


class QuotaExceeded(NoondayError):
    """The tenant has reached a quota. The request may be retried when some of what counts against it is gone."""

    code = "quota-exceeded"

    @property
    def limit(self) -> int:
        return int(self.context["limit"])

    @property
    def used(self) -> int:
        return int(self.context["used"])

    @property
    def requested(self) -> int:
        """The number of additional items that were requested."""
        return int(self.context["requested"])

    @property
    def retry_after_sec(self) -> int:
        """The time until the next item that counts against the quota may be gone."""
        return int(self.context["retryAfterSec"])


class NotFound(NoondayError):
    code = "not-found"


class Conflict(NoondayError):
    """The request is valid, but the present state does not allow it."""

    code = "conflict"


class LeaseLost(Conflict):
    """The caller does not have the execution any more: its lease has lapsed, or the process that gave it has ended."""

    code = "lease-lost"


class NotInThisMode(Conflict):
    """The mode of this installation does not have what the request is about."""

    code = "not-in-this-mode"


class VersionMismatch(NoondayError):
    """The version in If-Match is not the present one."""

    code = "version-mismatch"


class IdempotencyMismatch(NoondayError):
    """The Idempotency-Key was used before with a different request."""

    code = "idempotency-key-reused"


class IdempotencyInProgress(NoondayError):
    """The first request with this Idempotency-Key has not been answered yet."""

    code = "idempotency-in-progress"


class Unauthorized(NoondayError):
    code = "unauthorized"


class Forbidden(NoondayError):
    code = "forbidden"


class StaleEpoch(NoondayError):
    """A write under an epoch that is no longer the present one: another process has taken over."""

    code = "stale-epoch"


class Unavailable(NoondayError):
    """A dependency cannot be reached now. The request may be retried later."""

    code = "unavailable"


class Busy(NoondayError):
    """Too many computations are in progress. The request may be retried in a second."""

    code = "busy"


class StoreUnavailable(Unavailable):
    """The store is unreachable, full, read-only or broken. `detail` says which, and what to do."""

    code = "store-unavailable"


class StoreFailed(StoreUnavailable):
    """The store returned an error about neither the connection nor the data. The call may be retried later.

    The cause may be the store as a whole (an unfinished upgrade) or one row (a damaged page). Dispatcher and recorder halve a
    batch that fails so, until the culprit is alone and the rest succeeds.
    """


class StoreLost(StoreUnavailable):
    """This process cannot use its store any more, however long it waits. It has to be restarted."""


class IndexUnavailable(Unavailable):
    """The hot index cannot be reached. The sweeper finds the entries that could not be added."""

    code = "index-unavailable"


class BusUnavailable(Unavailable):
    """The bus cannot be reached: nothing can be published or reported now."""

    code = "bus-unavailable"


class LeasesUnavailable(Unavailable):
    """The lease servers cannot be reached: the members are unknown now."""

    code = "leases-unavailable"


class TokensUnavailable(Unavailable):
    """The rate tokens of tenants cannot be counted now."""

    code = "tokens-unavailable"


class SignalsUnavailable(Unavailable):
    """The copy of claims and revocations cannot be reached. A revocation is stored, but is not effective at once."""

    code = "signals-unavailable"


class EngineStopped(Unavailable):
    """The engine of this process has failed. It accepts no jobs, because nothing would run them."""

    code = "engine-stopped"


class BadData(NoondayError):
    """The store refuses a value, such as text with a NUL or a number out of range. A retry cannot succeed."""

    code = "bad-data"


class AlreadyRunning(NoondayError):
    """Another process owns this store."""

    code = "already-running"


class MissingExtra(NoondayError, ImportError):
    """A part of Noonday was used whose extra is not installed. Names the command that installs it."""

    code = "missing-extra"


class BadSettings(NoondayError):
    code = "bad-settings"


class BadKey(NoondayError):
    """No configured key opens a ciphertext, or it was made for another tenant or job."""

    code = "bad-key"


class DoNotRetry(NoondayError):
    """Raised by a handler to make a failure final, whatever the retry policy says."""

    code = "do-not-retry"


class ExecutionFailed(NoondayError):
    """Raised by a client's `result()` when the execution that it waited for did not succeed."""

    code = "execution-failed"


LEAST_LIKENESS = 0.6
"""Similarity, from 0 to 1, below which a known name is not suggested."""
MOST_COMPARED = 40
"""Maximum number of known names that are compared closely with an unknown one."""


@contextmanager
def few_suggestions(most: int) -> Iterator[None]:
    """Limit the suggestions of `nearest` in this block. Each suggestion costs a millisecond or two."""
    token = _suggestions_left.set([most])
    try:
        yield
    finally:
        _suggestions_left.reset(token)


_suggestions_left: ContextVar[list[int] | None] = ContextVar("suggestions left", default=None)


def is_bad_data(error: BaseException) -> bool:
    """Return whether an error is about a value that can never be stored or decoded.

    Only such an error is final. Any other error, even an unknown one, is temporary.
    """
    return isinstance(error, BadData | msgspec.MsgspecError | UnicodeError | OverflowError)


def nearest(value: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most like `value`, if any is. None also when `few_suggestions` is used up."""
    left = _suggestions_left.get()
    if left is not None:
        if left[0] <= 0:
            return None
        left[0] -= 1
    names = _likeliest(value, list(known))
    found = get_close_matches(value, names, n=1, cutoff=LEAST_LIKENESS)
    if found:
        return found[0]
    folded = {name.lower(): name for name in names}
    close = get_close_matches(value.lower(), list(folded), n=1, cutoff=LEAST_LIKENESS)
    return folded[close[0]] if close else None


def _likeliest(value: str, names: list[str]) -> list[str]:
    """Return the names that share the most pairs of letters with `value`, in their order."""
    if len(names) <= MOST_COMPARED:
        return names
    pairs = _pairs(value)
    shared = {name: len(pairs & _pairs(name)) for name in names}
    chosen = set(nlargest(MOST_COMPARED, names, key=shared.__getitem__))
    return [name for name in names if name in chosen]


def _pairs(name: str) -> set[str]:
    folded = name.lower()
    return {folded[at : at + 2] for at in range(len(folded) - 1)}
