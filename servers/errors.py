"""Errors of servers. Each message names the next step or the last lines of a log."""


class ServerFailed(Exception):
    """A server did not start, respond or stop. The message ends with the last lines of its log."""


class CannotInstall(Exception):
    """A program is missing and cannot be installed here. The message names the next step."""


class WrongUse(Exception):
    """The request contradicts the existing data or the allowed values. The message names the next step."""
