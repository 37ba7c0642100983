"""Who a worker is on the log."""

from dataclasses import dataclass

from noonday.model.ids import WorkerId
from noonday.worker.completing import Completing

NOT_JOINED = -1


@dataclass(eq=False, slots=True)
class Identity:
    """A name that is fresh at every start, and after every stall. A run keeps the identity under which it began."""

    id: WorkerId
    completing: Completing | None = None
    """What its runs record their own end with."""
    partition: int = NOT_JOINED
    """The partition of the log that it reports to."""

    @property
    def has_joined(self) -> bool:
        """Whether it is known to the bus and to the log."""
        return self.partition != NOT_JOINED


NOBODY = Identity(WorkerId(""))
"""Whose runs are not reported: those in the process of a handler."""
