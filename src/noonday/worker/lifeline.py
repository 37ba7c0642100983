"""Lifelines: pipes by which the kernel kills a process when the process at the other end is gone."""

import fcntl
import os
import select
import signal


def end_with(lifeline: int, owner: int) -> bool:
    """Have the kernel kill `owner` (a process, or a group as a negative number) once the other end of a lifeline is closed.

    Nothing is ever written to a lifeline. Returns False if the other end is closed already. Where the kernel cannot do this, the
    caller has to watch for the end of the other process itself.
    """
    os.set_inheritable(lifeline, False)
    if hasattr(fcntl, "F_SETSIG"):
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, owner)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    # The other end may have closed before the kernel was set up.
    return not select.select([lifeline], [], [], 0)[0]
