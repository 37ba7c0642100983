"""Every error Noonday raises, in one tree.

Each class has a stable `code`: clients key on it, never on the text. `api/errors.py` is the only map to HTTP.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from difflib import get_close_matches
from heapq import nlargest
from typing import Any

import msgspec


class Flaw(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One thing wrong with an input: where it stands, what it says, what would be valid."""

    pointer: str
    """JSON pointer to the offending value, such as `/retryPolicy/maxAttempts`; empty for the whole input."""
    detail: str
    value: Any = None
    allowed: Any = None
    nearest: str | None = None


class NoondayError(Exception):
    """The root. Nothing else of ours is raised across a boundary."""

    code = "error"

    def __init__(self, detail: str = "", **context: Any) -> None:
        super().__init__(detail)
        self.detail = detail
        self.context = context
        """Facts a program can use: becomes extension members of problem details."""


FLAWS_OF_JOB = 20
FLAWS_OF_BATCH = 100


class InvalidInput(NoondayError):
    """The caller said something that cannot be. Carries every flaw that was found."""

    code = "invalid-input"

    def __init__(
        self, detail: str, flaws: Sequence[Flaw] = (), *, most_flaws: int = FLAWS_OF_JOB, **context: Any
    ) -> None:
        super().__init__(detail, **context)
        self.flaws = tuple(flaws)
        self.most_flaws = most_flaws
        """How many are told; of the others only the number."""

    @classmethod
    def of(cls, pointer: str, detail: str, value: Any = None, **more: Any) -> "InvalidInput":
        return cls(detail, [Flaw(pointer, detail, value, **more)])


class PayloadTooLarge(NoondayError):
    code = "payload-too-large"


class QuotaExceeded(NoondayError):
    """The tenant has as many as it may have. Trying again later is right, once something of it is gone."""

    code = "quota-exceeded"

    @property
    def limit(self) -> int:
        return int(self.context["limit"])

    @property
    def used(self) -> int:
        return int(self.context["used"])

    @property
    def requested(self) -> int:
        """How many more were asked for at once."""
        return int(self.context["requested"])

    @property
    def retry_after_sec(self) -> int:
        """When the next of them may be gone."""
        return int(self.context["retryAfterSec"])


class NotFound(NoondayError):
    code = "not-found"


class Conflict(NoondayError):
    """The request is sound, but the present state does not allow it."""

    code = "conflict"


class VersionMismatch(NoondayError):
    """If-Match named a version that is no longer the present one."""

    code = "version-mismatch"


class IdempotencyMismatch(NoondayError):
    """The same Idempotency-Key came with a different request."""

    code = "idempotency-key-reused"


class IdempotencyInProgress(NoondayError):
    """The first request with this Idempotency-Key has not been answered yet."""

    code = "idempotency-in-progress"


class Unauthorized(NoondayError):
    code = "unauthorized"


class Forbidden(NoondayError):
    code = "forbidden"


class StaleEpoch(NoondayError):
    """A write under a lease that somebody else has won since."""

    code = "stale-epoch"


class Unavailable(NoondayError):
    """Something that work depends on cannot be reached now. Trying again later is right."""

    code = "unavailable"


class Busy(NoondayError):
    """Too much is being computed for others at this moment. Trying again in a second is right."""

    code = "busy"


class StoreUnavailable(Unavailable):
    """The store cannot be used now: away, full, read-only or broken. `detail` says which, and what to do."""

    code = "store-unavailable"


class StoreFailed(StoreUnavailable):
    """The store answered with an error that is about neither the connection nor the data. Trying again later is right.

    The cause may be the store as a whole (an upgrade that is half done) or one row (a damaged page). Whoever fires or settles
    a batch divides it, so that the rest goes on.
    """


class StoreLost(StoreUnavailable):
    """This process cannot use its store any more, however long it waits. It has to stop, and to be started again."""


class IndexUnavailable(Unavailable):
    """The hot index cannot be reached. What is not placed is found by the sweeper."""

    code = "index-unavailable"


class BusUnavailable(Unavailable):
    """Nothing can be published or reported now."""

    code = "bus-unavailable"


class LeasesUnavailable(Unavailable):
    """Who is a member cannot be told now."""

    code = "leases-unavailable"


class TokensUnavailable(Unavailable):
    """What tenants may start a second cannot be counted at present."""

    code = "tokens-unavailable"


class SignalsUnavailable(Unavailable):
    """The wish is stored, but the flag that makes it win at once could not be set."""

    code = "signals-unavailable"


class EngineStopped(Unavailable):
    """The engine of this process has failed: it accepts nothing, because nothing would run it."""

    code = "engine-stopped"


class BadData(NoondayError):
    """The store refuses a value, such as text with a NUL or a number out of range. Trying again is in vain."""

    code = "bad-data"


class AlreadyRunning(NoondayError):
    """Another process owns this store."""

    code = "already-running"


class BadSettings(NoondayError):
    code = "bad-settings"


class BadKey(NoondayError):
    """Ciphertext that no key we have can open, or that was made for another tenant or job."""

    code = "bad-key"


class DoNotRetry(NoondayError):
    """Raised by a handler: this failure is final, whatever the retry policy says."""

    code = "do-not-retry"


class ExecutionFailed(NoondayError):
    """Raised by `result()` of a client when the execution it waited for did not succeed."""

    code = "execution-failed"


MOST_COMPARED = 40
"""How many known names are compared closely with one that is not known."""


@contextmanager
def few_suggestions(most: int) -> Iterator[None]:
    """Let `nearest` suggest at most so many names in this block: each suggestion costs a millisecond or two."""
    token = _suggestions_left.set([most])
    try:
        yield
    finally:
        _suggestions_left.reset(token)


_suggestions_left: ContextVar[list[int] | None] = ContextVar("suggestions left", default=None)


def is_bad_data(error: BaseException) -> bool:
    """Whether an error is about a value that can never be stored or decoded.

    Only such an error is final for what it happened to. Any other one, also one that nobody thought of, is "not now".
    """
    return isinstance(error, BadData | msgspec.MsgspecError | UnicodeError | OverflowError)


def nearest(value: str, known: Iterable[str]) -> str | None:
    """The known name that `value` was most likely meant to be. None also after the last of `few_suggestions`."""
    left = _suggestions_left.get()
    if left is not None:
        if left[0] <= 0:
            return None
        left[0] -= 1
    names = _likeliest(value, list(known))
    found = get_close_matches(value, names, n=1, cutoff=0.5)
    if found:
        return found[0]
    folded = {name.lower(): name for name in names}
    close = get_close_matches(value.lower(), list(folded), n=1, cutoff=0.5)
    return folded[close[0]] if close else None


def _likeliest(value: str, names: list[str]) -> list[str]:
    """Of many names those that share most pairs of letters with `value`, in their order."""
    if len(names) <= MOST_COMPARED:
        return names
    wanted = _pairs(value)
    shared = {name: len(wanted & _pairs(name)) for name in names}
    chosen = set(nlargest(MOST_COMPARED, names, key=shared.__getitem__))
    return [name for name in names if name in chosen]


def _pairs(name: str) -> set[str]:
    folded = name.lower()
    return {folded[at : at + 2] for at in range(len(folded) - 1)}
