"""Check of the offset between a server's clock and the local clock."""

from collections.abc import Awaitable, Callable

from noonday.cli.instants import length
from noonday.cli.server.checks import Finding, Level
from noonday.runtime.clock import ClockKeeper, ReferenceClock

NEGLIGIBLE_MS = 500
TRIES = 3


async def check_server_clock(about: str, read_ms: Callable[[], Awaitable[int]], limit_sec: int) -> Finding:
    """Measure the offset as processes do: of several tries, the fastest counts."""
    clock = ReferenceClock()
    keeper = ClockKeeper(clock, read_ms)
    for _ in range(TRIES):
        await keeper.run_once(0)
    return _finding(about, -clock.offset_ms, limit_sec)


def _finding(about: str, ahead_ms: int, limit_sec: int) -> Finding:
    if abs(ahead_ms) < NEGLIGIBLE_MS:
        return Finding(Level.OK, about, f"{abs(ahead_ms)} ms from ours")
    detail = f"ours is {length(abs(ahead_ms) / 1000)} {'ahead of' if ahead_ms > 0 else 'behind'} the server's"
    fix = "set both clocks by NTP"
    if abs(ahead_ms) > limit_sec * 1000:
        return Finding(Level.FAIL, about, f"{detail}: no process starts here", fix)
    return Finding(Level.WARN, about, f"{detail}; processes go by the database's", fix)
