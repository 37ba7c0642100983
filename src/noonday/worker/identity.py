"""The identity under which a worker takes dispatches and reports."""

from dataclasses import dataclass

from noonday.model.ids import WorkerId
from noonday.worker.completing import Completing

NOT_JOINED = -1


@dataclass(eq=False, slots=True)
class Identity:
    """An id that is new at every start and after every stall. A run keeps the identity under which it was taken."""

    id: WorkerId
    completing: Completing | None = None
    """Records completions for runs of this identity. None if there is no database for them."""
    partition: int = NOT_JOINED
    """The log partition that it reports to."""

    @property
    def has_joined(self) -> bool:
        """Whether the bus and the log know this identity."""
        return self.partition != NOT_JOINED


NOBODY = Identity(WorkerId(""))
"""The identity of runs inside a handler's process, which reports nothing itself."""
