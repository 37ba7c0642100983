"""Taking: from the bus over the claims to the backlog."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog

from noonday.model.errors import NoondayError, SignalsUnavailable
from noonday.model.handler import Handler
from noonday.model.message import Dispatch
from noonday.ports.bus import Bus
from noonday.ports.clock import Clock
from noonday.runtime.supervise import should_log
from noonday.worker.backlog import Backlog
from noonday.worker.capacity import Capacity
from noonday.worker.claims import Claims
from noonday.worker.connectivity import Connectivity
from noonday.worker.membership import Membership
from noonday.worker.parked import ParkedDispatches
from noonday.worker.rounds import Rounds
from noonday.worker.run import Run

log = structlog.get_logger("noonday.worker")
FULL_POOL_RETRY_SEC = 0.005
"""Seconds until a full pool is checked for room again, however long the other pools wait for dispatches."""
_TAKE_WAIT_SEC = 0.5
"""Maximum seconds that a request for dispatches waits for the first."""
_RETRY_SEC = 0.5
"""Seconds until the next try after dispatches could not be taken."""


@dataclass(eq=False)
class Taker:
    """Takes as many dispatches as there is room for, and claims those that start soon."""

    _find_handler: Callable[[Dispatch], Handler | None]
    _pools: Sequence[str]
    _bus: Bus
    _membership: Membership
    _connectivity: Connectivity
    _claims: Claims
    _parked: ParkedDispatches
    _capacity: Capacity
    _backlog: Backlog
    _rounds: Rounds
    _clock: Clock

    async def run_forever(self) -> None:
        failures = 0
        while self._rounds.taking:
            try:
                await self.take_once(_TAKE_WAIT_SEC)
                failures = 0
            except NoondayError as error:
                failures += 1
                if should_log(failures):
                    log.warning("take failed", error=error.detail, failures=failures)
                await self._clock.sleep(_RETRY_SEC)

    async def take_once(self, wait_sec: float) -> int:
        """Take as many dispatches as there is room for, and claim them. Returns their number. A new identity joins first."""
        if not self._membership.identity.has_joined:
            await self._membership.join()
        if self._rounds.taking and self._parked.are_due:
            with self._rounds.one():
                await self._receive(self._parked.take())
        room = self._room()
        if len(room) < len(self._pools):
            wait_sec = min(wait_sec, FULL_POOL_RETRY_SEC)
        if not room:
            if wait_sec > 0:
                await self._clock.sleep(wait_sec)
            return 0
        identity = self._membership.identity
        dispatches = await self._bus.take(identity.id, room, wait_sec)
        if not dispatches or not self._rounds.taking or identity is not self._membership.identity:
            return 0  # the bus delivers again what was taken under a former identity
        with self._rounds.one():
            return await self._receive(dispatches)

    def _room(self) -> dict[str, int]:
        """Return how many dispatches to take, by pool that has room."""
        now = self._clock.monotonic()
        if not self._connectivity.may_take(now):
            return {}
        room = {pool: self._capacity.room(pool, now) for pool in self._pools}
        return {pool: count for pool, count in room.items() if count > 0}

    async def _receive(self, dispatches: Sequence[Dispatch]) -> int:
        """Claim the dispatches that start soon, and admit all. Returns their number.

        The others are claimed when there is a slot: until then another worker that has a slot may run them.
        """
        soon, later = self._capacity.split_by_expected_start([self._run_of(dispatch) for dispatch in dispatches])
        try:
            claimed = await self._claims.claim(soon)
        except SignalsUnavailable:
            # They are taken and not done with, so no other worker gets them while this one keeps trying.
            self._parked.add(dispatches)
            raise
        now_ms = self._clock.now_ms()
        self._backlog.admit(claimed, now_ms)
        self._backlog.admit(later, now_ms)
        self._rounds.start_wake.set()
        return len(dispatches)

    def _run_of(self, dispatch: Dispatch) -> Run:
        return Run(dispatch, None, self._find_handler(dispatch), self._membership.identity)
