"""Logs of commands that run parts of a server."""

from noonday.wiring.settings import Settings
from noonday.wiring.telemetry import set_up_logs


def set_up_default_logs() -> None:
    """Log warnings and errors to standard error, so that standard output contains only the command's own output."""
    set_up_logs(Settings())
