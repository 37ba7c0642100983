"""A process that ends with another one: the kernel kills it when the other end of a pipe closes, whatever closed it."""

import fcntl
import os
import select
import signal


def end_with(lifeline: int, owner: int) -> bool:
    """Have `owner` (a process, or a group as a negative number) killed once nobody holds the other end of the lifeline.

    Nothing is ever written to it. Returns False if the other end is closed already. Where the kernel cannot do it, somebody
    has to watch for that end.
    """
    os.set_inheritable(lifeline, False)
    if hasattr(fcntl, "F_SETSIG"):
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, owner)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    # It may have closed before the kernel was asked.
    return not select.select([lifeline], [], [], 0)[0]
