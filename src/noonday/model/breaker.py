"""Circuit breakers: when to stop calling a target that fails, and when to try again."""

from dataclasses import dataclass, field

import msgspec

WINDOW_MS = 60_000
BUCKET_MS = 10_000
MIN_CALLS = 10
"""Minimum number of calls to an endpoint in the window before its breaker may open."""
MIN_RUNS = 100
"""Minimum number of runs of a handler in the window before its retry breaker may open."""
OPEN_MS = 30_000
PROBE_MS = 60_000
"""A probe that has not reported for this long counts as lost, and another one is allowed."""

CLOSED = 0
PROBE = -1
"""One call is allowed, to test the target. All other callers wait for its outcome."""


@dataclass
class Breaker:
    """A breaker that opens when more than half of enough calls in a minute have failed.

    While it is closed, calls are counted. While it is open, for 30 s, no calls are made. Then one call probes the target: a
    success closes the breaker, a failure opens it for another 30 s.
    """

    counts: dict[int, list[int]] = field(default_factory=dict)
    """[calls, failures] by bucket of ten seconds."""
    open_until_ms: int = 0
    probe_until_ms: int = 0

    def add_counts(self, calls: int, failures: int, now_ms: int, least: int = MIN_CALLS) -> int:
        """Count calls that were made while the breaker was closed.

        Returns CLOSED, how long it stays open in ms, or PROBE if its time is over. It may open from `least` calls in the
        window.
        """
        if self.open_until_ms:
            return self.open_until_ms - now_ms if now_ms < self.open_until_ms else PROBE
        bucket = now_ms // BUCKET_MS
        self.counts = {at: count for at, count in self.counts.items() if at > bucket - WINDOW_MS // BUCKET_MS}
        count = self.counts.setdefault(bucket, [0, 0])
        count[0] += calls
        count[1] += failures
        if self._should_open(least):
            self._open(now_ms)
            return OPEN_MS
        return CLOSED

    def record_probe(self, failed: bool, now_ms: int) -> int:
        """Record the outcome of the probe. Returns CLOSED, or how long the breaker stays open, in ms."""
        if failed:
            self._open(now_ms)
            return OPEN_MS
        self.counts = {}
        self.open_until_ms = self.probe_until_ms = 0
        return CLOSED

    def ask(self, now_ms: int) -> int:
        """Return whether to call: CLOSED, PROBE, or how long to wait, in ms."""
        if not self.open_until_ms:
            return CLOSED
        wait = max(self.open_until_ms, self.probe_until_ms) - now_ms
        if wait > 0:
            return wait
        self.probe_until_ms = now_ms + PROBE_MS
        return PROBE

    def _open(self, now_ms: int) -> None:
        self.counts = {}
        self.open_until_ms, self.probe_until_ms = now_ms + OPEN_MS, 0

    def _should_open(self, least: int) -> bool:
        calls = sum(each[0] for each in self.counts.values())
        return calls >= least and sum(each[1] for each in self.counts.values()) * 2 > calls


class CallCounts(msgspec.Struct, frozen=True):
    """The calls of one worker since its last report to a breaker."""

    calls: int = 0
    failures: int = 0
    probe_failed: bool | None = None
    """True if the probe failed. None if no probe ended."""
    least: int = MIN_CALLS
    """Minimum number of calls in a minute before the breaker may open."""
