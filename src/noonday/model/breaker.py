"""When to stop calling somebody who fails, and when to try again."""

from dataclasses import dataclass, field

WINDOW_MS = 60_000
BUCKET_MS = 10_000
MIN_CALLS = 10
"""Fewer calls to an endpoint in the window say nothing."""
MIN_RUNS = 100
"""Fewer runs of a handler are no storm."""
OPEN_MS = 30_000
PROBE_MS = 60_000
"""So long after it was let go a probe of which nothing was heard is given up, and another one let go."""

CLOSED = 0
PROBE = -1
"""One may go, to see whether it works again; everybody else waits for what it finds."""


@dataclass
class Breaker:
    """Closed: calls are counted. More than half of enough in a minute have failed: open, nobody calls for 30 s. Then one call is
    made: if it succeeds the breaker is closed again, if not it is open for as long again."""

    counts: dict[int, list[int]] = field(default_factory=dict)
    """[calls, failures] of ten seconds each."""
    open_until_ms: int = 0
    probe_until_ms: int = 0

    def tell(self, calls: int, failures: int, now_ms: int, least: int = MIN_CALLS) -> int:
        """Count what came of calls that were made while it was closed. Answers for how long it is open, in ms. `least`: how many
        calls in the window it takes."""
        if self.open_until_ms:
            return self.open_until_ms - now_ms if now_ms < self.open_until_ms else PROBE
        bucket = now_ms // BUCKET_MS
        self.counts = {at: count for at, count in self.counts.items() if at > bucket - WINDOW_MS // BUCKET_MS}
        count = self.counts.setdefault(bucket, [0, 0])
        count[0] += calls
        count[1] += failures
        if self._is_too_much(least):
            self._open(now_ms)
            return OPEN_MS
        return CLOSED

    def tell_probe(self, failed: bool, now_ms: int) -> int:
        """What came of the one call that was let go."""
        if failed:
            self._open(now_ms)
            return OPEN_MS
        self.counts = {}
        self.open_until_ms = self.probe_until_ms = 0
        return CLOSED

    def ask(self, now_ms: int) -> int:
        """Whether somebody may call: CLOSED, PROBE, or how long to wait, in ms."""
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

    def _is_too_much(self, least: int) -> bool:
        calls = sum(each[0] for each in self.counts.values())
        return calls >= least and sum(each[1] for each in self.counts.values()) * 2 > calls
