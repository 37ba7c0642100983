"""Claims of dispatches, and the flags by which a wish of the user reaches a worker at once."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import Enum

from noonday.model.ids import ExecutionId, JobId, WorkerId
from noonday.model.message import Dispatch, Token

Named = tuple[ExecutionId, int]
"""(execution, dispatch)."""
Flag = tuple[ExecutionId, int, str]
"""(execution, dispatch, reason)."""
OVERTAKEN = "OVERTAKEN"
"""The reason not to start what was fired before its job was barred, or before the era: it may have run already, and what it was
fired with may have changed. It goes back; whoever waits for it is fired again."""


class Taken(Enum):
    """Why a delivery may not begin."""

    TOLD = "its start or end is on the log: drop it"
    HELD = "another delivery of it was claimed a moment ago: park it, and try again until that claim lapses"


class Signals(ABC):
    """A copy of wishes that the store has, kept where workers can look. It may lose its memory: then the era is gone, and
    nothing starts until the flags are set again from the store and the era after them."""

    @property
    @abstractmethod
    def lapse_sec(self) -> float:
        """How long a claim holds if nothing is told. Infinite where none lapses."""

    @abstractmethod
    async def claim(self, worker: WorkerId, dispatches: Sequence[Dispatch], now_ms: int) -> list[Token | Taken]:
        """For each dispatch the token of a run that may begin, or why it may not.

        A claim lapses after 30 s if nothing was told: its holder died before it could say a word, and the next delivery takes
        over; its token says so. Where whoever holds a claim dies with the claims themselves, none lapses.
        """

    @abstractmethod
    async def renew(self, claims: Sequence[tuple[Dispatch, Token]]) -> list[Token | Taken]:
        """Extend claims, each named by the token it was answered with. Returns that token, or why the run may not begin.

        A claim that has lapsed is extended too, unless another delivery was claimed since. A claim that is not remembered is
        made again.
        """

    @abstractmethod
    async def told(self, names: Sequence[Named]) -> None:
        """Their start or end is on the log: whoever gets them again within five minutes may drop them."""

    @abstractmethod
    async def look(self, pool: str, dispatches: Sequence[Dispatch]) -> Mapping[ExecutionId, str] | None:
        """The last look before a start: the reasons not to start, by execution. None: the era is gone, start nothing."""

    @abstractmethod
    async def raise_flags(self, pool: str, flags: Sequence[Flag]) -> None:
        """Raises SignalsUnavailable if they could not be set."""

    @abstractmethod
    async def bar(self, pool: str, job: JobId, until_ms: int) -> None:
        """Nothing of this job that was fired up to an instant starts any more, whichever dispatch it is: also one that is
        superseded or over, which comes again because nobody could say in time that it had run.

        Raises SignalsUnavailable if that could not be set.
        """

    @abstractmethod
    async def wanted(self, pool: str, executions: Sequence[Named]) -> Mapping[ExecutionId, str]:
        """Those among running executions that are asked to end, with the reason."""

    @abstractmethod
    async def has_era(self, pool: str) -> bool: ...

    @abstractmethod
    async def beat(self, pool: str, now_ms: int, seen_ms: int) -> int | None:
        """Note that the era is alive as of now. Returns the latest beat.

        Returns None if there is no era. If the latest beat is before `seen_ms`, this is an older copy of what there was, which
        lacks later flags, bars and claims: its era is ended, and nothing starts.
        """

    @abstractmethod
    async def begin_era(self, pool: str, barred_until_ms: int = 0) -> None:
        """All flags the store knows of are set: starts may be allowed, of what was fired after an instant. What is older may
        have run, and nobody remembers. Where claims are forgotten only together with the dispatches, nothing is barred."""
