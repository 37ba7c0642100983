"""What can go wrong with a server, said in a way that helps."""


class ServerFailed(Exception):
    """A server did not start, answer or stop; the message ends with the last lines of its log."""


class CannotInstall(Exception):
    """Something is missing that we may not or cannot install; the message says what to do."""


class WrongUse(Exception):
    """What was asked for does not fit what is there; the message says what would."""
