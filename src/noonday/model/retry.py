"""Retry policies: how many attempts an execution has, and how long it waits between them."""

from enum import StrEnum

import msgspec

from noonday.model.errors import Flaw
from noonday.model.ids import stable_fraction

MAX_DELAY_MS = 7 * 24 * 3_600_000


class Backoff(StrEnum):
    """Growth of the wait with the number of attempts."""

    LIST = "LIST"
    EXPONENTIAL = "EXPONENTIAL"
    FIXED = "FIXED"


class RetryPolicy(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """Number of attempts, and the waits between them. Waits are upper bounds: the actual wait is in [0, bound] (full jitter)."""

    max_attempts: int = 5
    backoff: Backoff = Backoff.LIST
    delays_ms: tuple[int, ...] = (30_000, 120_000, 600_000, 3_600_000)
    """LIST: the waits after the first, second, ... attempt. The last one repeats."""
    initial_delay_ms: int = 30_000
    """EXPONENTIAL and FIXED: the first wait."""
    multiplier: float = 2.0
    max_delay_ms: int = 3_600_000


DEFAULT_POLICY = RetryPolicy()


def bound_ms(policy: RetryPolicy, attempt: int) -> int:
    """Return the longest wait after `attempt` (1 is the first) failed."""
    if policy.backoff is Backoff.LIST:
        return policy.delays_ms[min(attempt, len(policy.delays_ms)) - 1]
    if policy.backoff is Backoff.FIXED:
        return policy.initial_delay_ms
    # 2**1024 overflows a float. The maximum delay is reached long before.
    grown = policy.initial_delay_ms * policy.multiplier ** min(attempt - 1, 64)
    return int(min(grown, policy.max_delay_ms))


def wait_ms(policy: RetryPolicy, attempt: int, execution: str) -> int:
    """Return the wait after `attempt` failed. It depends only on execution and attempt, so a replay decides the same."""
    return int(bound_ms(policy, attempt) * stable_fraction(f"{execution}/{attempt}"))


def flaws_of(policy: RetryPolicy, pointer: str) -> list[Flaw]:
    """Return the flaws of a policy. `pointer` is the JSON pointer to it."""
    found = []

    def check(ok: bool, field: str, value: object, detail: str) -> None:
        if not ok:
            found.append(Flaw(f"{pointer}/{field}", detail, value))

    check(1 <= policy.max_attempts <= 100, "maxAttempts", policy.max_attempts, "must be from 1 to 100")
    check(0 < len(policy.delays_ms) <= 100, "delaysMs", list(policy.delays_ms), "must have 1 to 100 waits")
    check(
        all(0 <= delay <= MAX_DELAY_MS for delay in policy.delays_ms),
        "delaysMs",
        list(policy.delays_ms),
        f"each wait must be from 0 to {MAX_DELAY_MS} ms (7 days)",
    )
    check(
        0 <= policy.initial_delay_ms <= MAX_DELAY_MS,
        "initialDelayMs",
        policy.initial_delay_ms,
        f"must be from 0 to {MAX_DELAY_MS} ms (7 days)",
    )
    check(1 <= policy.multiplier <= 100, "multiplier", policy.multiplier, "must be from 1 to 100")
    check(
        0 <= policy.max_delay_ms <= MAX_DELAY_MS,
        "maxDelayMs",
        policy.max_delay_ms,
        f"must be from 0 to {MAX_DELAY_MS} ms (7 days)",
    )
    return found
