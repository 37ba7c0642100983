"""Who a worker is on the log."""

from dataclasses import dataclass

from noonday.model.ids import WorkerId
from noonday.worker.completing import Completing


@dataclass(eq=False, slots=True)
class Identity:
    """A name that is fresh at every start, and after every stall. A run keeps the identity under which it began."""

    id: WorkerId
    completing: Completing | None = None
    """What its runs record their own end with."""
    partition: int | None = None
    """The partition of the log that it reports to. None: it has not joined yet."""
