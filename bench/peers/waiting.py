"""Waiting until all is recorded, with looks that are few and cheap."""

import time
from dataclasses import dataclass

from bench.peers.session import Session, now_ms

STALLED_SEC = 90.0
"""If nothing more is started or recorded for so long, the rest is lost."""
NEAR_SEC, FAR_SEC = 0.005, 0.25
"""Pauses between questions to the workers' counters: half of the time that the rest is expected to take, within these."""
SHARE = 100
"""A look at the store is followed by a pause of so many times what it took, and by a tenth of a second at least."""
DENSE_SHARE = 10
"""Once all handlers were called, the last of them is about to be recorded: looks are that much denser."""


@dataclass
class Waited:
    complete: bool = False
    at_ms: int = 0
    """When the store was found to have nothing open."""
    sec: float = 0
    looks: int = 0
    looking_sec: float = 0


def await_recorded(session: Session, starts: int | None, until_ms: int, stalled_sec: float = STALLED_SEC) -> Waited:
    """Wait until nothing that was due until `until_ms` is open any more. `starts` is how many calls of handlers the workers
    will have counted by then, if they can tell."""
    begun, waited = time.monotonic(), Waited()
    all_started = starts is not None and _await_started(session, starts, waited, stalled_sec)
    progress = time.monotonic()
    while not waited.complete and time.monotonic() - progress < stalled_sec:
        looked = time.perf_counter()
        waited.complete = not session.is_open(until_ms)
        took = time.perf_counter() - looked
        waited.looks += 1
        waited.looking_sec += took
        waited.at_ms = now_ms()
        if not waited.complete:
            time.sleep(_pause_sec(took, dense=all_started))
    waited.sec = time.monotonic() - begun
    return waited


def _pause_sec(took: float, *, dense: bool) -> float:
    return min(0.1, max(0.01, DENSE_SHARE * took)) if dense else min(1.0, max(0.1, SHARE * took))


def _await_started(session: Session, starts: int, waited: Waited, stalled_sec: float) -> bool:
    """Ask how many handlers were called: less often the more are left."""
    before, since = -1, time.monotonic()
    last_at = since
    while True:
        asked = time.perf_counter()
        count = session.started()
        took = time.perf_counter() - asked
        waited.looking_sec += took
        waited.looks += 1
        now = time.monotonic()
        if count is None or count >= starts:
            return count is not None
        if count > before:
            rate = (count - before) / max(1e-6, now - last_at) if before >= 0 else 0
            before, since, last_at = count, now, now
            pause = (starts - count) / rate / 2 if rate else NEAR_SEC
            time.sleep(min(FAR_SEC, max(NEAR_SEC, pause, min(0.1, DENSE_SHARE * took))))
        elif now - since > stalled_sec:
            return False
        else:
            time.sleep(FAR_SEC / 5)
