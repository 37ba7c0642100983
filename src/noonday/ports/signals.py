"""Claims of dispatches, and revocations: the copies of the store's that workers read."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from noonday.model.claim import ClaimRefused, DispatchRef, Revocation
from noonday.model.ids import ExecutionId, JobId, WorkerId
from noonday.model.message import Dispatch, Token


class Signals(ABC):
    """Claims, revocations and fences, where every worker of a pool can read them.

    The store has all revocations; this is a copy. It may lose everything at any time. Its generation is lost with it, and
    nothing starts until the revocations are copied again from the store and a new generation begins.
    """

    @property
    @abstractmethod
    def lapse_sec(self) -> float:
        """Duration of a claim that is not acked, in seconds. Infinite if claims end with the process that holds them."""

    @abstractmethod
    async def claim(self, worker: WorkerId, dispatches: Sequence[Dispatch], now_ms: int) -> list[Token | ClaimRefused]:
        """Claim dispatches. Returns for each one the token of its run, or why it may not run.

        A claim that is not acked within `lapse_sec` lapses: its holder died before it reported. The next delivery takes it
        over, and its token says so.
        """

    @abstractmethod
    async def renew(self, claims: Sequence[tuple[Dispatch, Token]]) -> list[Token | ClaimRefused]:
        """Extend claims, each named by its token. Returns that token, or why the run may not begin.

        A lapsed claim is extended too, unless another delivery was claimed since. A claim that was lost is made again.
        """

    @abstractmethod
    async def ack(self, dispatches: Sequence[DispatchRef]) -> None:
        """Note that the log has the start or end of these dispatches. For five minutes, their duplicates are refused."""

    @abstractmethod
    async def pre_start_check(self, pool: str, dispatches: Sequence[Dispatch]) -> Mapping[ExecutionId, str] | None:
        """Return why dispatches must not start, by execution. None: there is no generation, so nothing may start."""

    @abstractmethod
    async def revoke(self, pool: str, revocations: Sequence[Revocation]) -> None:
        """Ask the workers of a pool to stop dispatches, or not to start them. Raises SignalsUnavailable."""

    @abstractmethod
    async def fence(self, pool: str, job: JobId, until_ms: int) -> None:
        """Keep every dispatch of a job that was fired up to an instant from starting, whatever its number.

        This includes superseded and finished dispatches that are delivered again. Raises SignalsUnavailable.
        """

    @abstractmethod
    async def revoked(self, pool: str, executions: Sequence[DispatchRef]) -> Mapping[ExecutionId, str]:
        """Return the reasons of those dispatches that are revoked, by execution."""

    @abstractmethod
    async def has_generation(self, pool: str) -> bool: ...

    @abstractmethod
    async def beat(self, pool: str, now_ms: int, seen_ms: int) -> int | None:
        """Note that the generation is alive as of now. Returns the latest beat, or None if there is no generation.

        If the latest beat is older than `seen_ms`, this is an old copy, which lacks later revocations, fences and claims: its
        generation is ended, and nothing starts.
        """

    @abstractmethod
    async def begin_generation(self, pool: str, fenced_before_ms: int = 0) -> None:
        """Allow starts of what is fired after an instant, once all revocations are copied from the store.

        Earlier dispatches may have run, and their acks are lost. Where claims are lost only together with the dispatches,
        nothing has to be fenced.
        """
