"""What a forked child inherits from the clients of its parent, and must not touch."""

import os
import weakref
from typing import Protocol


class Forkable(Protocol):
    """An object with connections or threads of its process."""

    def after_fork(self) -> list[object]:
        """Forget what belongs to the parent, in the child. Returns it."""


def on_fork(forkable: Forkable) -> None:
    """Call `after_fork` in each forked child, as long as the object exists."""
    _forkables.add(forkable)


def _after_fork() -> None:
    for forkable in list(_forkables):
        for inherited in forkable.after_fork():
            _keep_for_ever(inherited)


def _keep_for_ever(inherited: object) -> None:
    """Never run the destructor of an object, not even when the process ends.

    The destructor of a connection removes its socket from the selector, which the child shares with its parent: the parent would
    wait in vain for its next response. The operating system closes the sockets of the child.
    """
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(inherited))


_forkables: "weakref.WeakSet[Forkable]" = weakref.WeakSet()
os.register_at_fork(after_in_child=_after_fork)
