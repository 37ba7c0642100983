"""Time limits of the stop of a process."""

from noonday.ports.clock import Clock
from noonday.runtime.supervise import StopDeadline
from noonday.wiring.settings import Settings

STOP_SLACK_SEC, ORDERLY_SEC = 2.0, 1.25
"""Seconds after the drain time and the cancel grace within which a process has exited, and the part of them that an orderly stop
may take."""


def stop_within_sec(settings: Settings) -> float:
    """Return the maximum time of a stop in seconds, even if servers are unavailable or handlers do not end."""
    return settings.worker.drain_sec + settings.worker.cancel_grace_sec + STOP_SLACK_SEC


def stop_deadline(settings: Settings, clock: Clock) -> StopDeadline:
    """Return the deadline of an orderly stop that begins now."""
    return StopDeadline(clock, settings.worker.drain_sec + settings.worker.cancel_grace_sec + ORDERLY_SEC)


def drain_left_sec(settings: Settings, deadline: StopDeadline) -> float:
    """Return the drain time that earlier steps of the stop have left."""
    left_sec = deadline.left_sec() - settings.worker.cancel_grace_sec - ORDERLY_SEC
    return max(0.0, min(float(settings.worker.drain_sec), left_sec))
