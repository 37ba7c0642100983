"""The identity under which a worker takes dispatches and reports."""

from collections.abc import Callable
from dataclasses import dataclass

from noonday.crypto.keyring import Keyring
from noonday.model.ids import WorkerId
from noonday.ports.clock import Clock
from noonday.ports.completions import Completions
from noonday.worker.completing import Completer

NOT_JOINED = -1


@dataclass(eq=False, slots=True)
class Identity:
    """An id that is new at every start and after every stall. A run keeps the identity under which it was taken."""

    id: WorkerId
    completing: Completer | None = None
    """Records completions for runs of this identity. None if there is no database for them."""
    partition: int = NOT_JOINED
    """The log partition that it reports to."""

    @property
    def has_joined(self) -> bool:
        """True if the bus and the log know this identity."""
        return self.partition != NOT_JOINED


NOBODY = Identity(WorkerId(""))
"""The identity of runs inside a handler's process, which reports nothing itself."""


def new_identity(
    new_id: Callable[[], WorkerId],
    completions: Completions | None,
    keyring: Keyring,
    clock: Clock,
    result_limit: int,
) -> Identity:
    """Return an identity with a new id, which has not joined yet."""
    name = new_id()
    if not completions:
        return Identity(name)
    return Identity(name, Completer(completions, name, keyring, clock, result_limit))
