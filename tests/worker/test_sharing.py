"""One tenant's slow calls never hold all slots of a pool."""

from noonday.model.message import Token
from noonday.worker.run import Run
from noonday.worker.sharing import LONGEST_WAIT_SEC, SLOW_SEC, SlotShares
from tests.support.clock import ManualClock
from tests.support.factories import NOW_MS, dispatch

POOL = "webhooks"


class Slots:
    """A pool of 20 slots."""

    def __init__(self, slots: int = 20, share: float = 0.5) -> None:
        self.clock = ManualClock()
        self.shares = SlotShares({POOL: slots}, {POOL: share}, self.clock)
        self._count = 0

    def runs(self, count: int, tenant: str = "tarpit", endpoint: str | None = None) -> list[Run]:
        made = []
        for _ in range(count):
            self._count += 1
            fields = {"pool": POOL, "tenant": tenant, "endpoint": endpoint}
            made.append(Run(dispatch(f"e{self._count}", **fields), Token(1, NOW_MS), None))
        return made

    def start(self, runs: list[Run]) -> list[Run]:
        """Start the runs that may start."""
        starting = self.shares.sort(POOL, runs).starting
        self.shares.started(starting)
        return starting


def test_each_tenant_takes_half_of_the_slots_that_others_leave() -> None:
    slots = Slots()
    taken = [len(slots.start(slots.runs(20, tenant))) for tenant in ("a", "b", "c", "d", "e")]
    assert taken == [10, 5, 2, 1, 1]


def test_endpoint_takes_half_of_the_slots_that_other_calls_of_its_tenant_leave() -> None:
    slots = Slots()
    endpoints = ("https://a.example:443", "https://b.example:443", "https://c.example:443")
    assert [len(slots.start(slots.runs(20, endpoint=each))) for each in endpoints] == [5, 2, 1]


def test_single_slot_is_for_all() -> None:
    slots = Slots(slots=1)
    (run,) = slots.start(slots.runs(3))
    assert slots.start(slots.runs(1)) == []
    slots.shares.ended(run)
    assert len(slots.start(slots.runs(1, "other"))) == 1


def test_share_used_by_quick_calls_is_waited_for_in_the_worker() -> None:
    slots = Slots()
    slots.start(slots.runs(10))
    more = slots.runs(2)
    found = slots.shares.sort(POOL, more)
    assert (found.starting, found.waiting, found.deferred) == ([], more, {})


def test_share_used_by_slow_calls_is_waited_for_on_the_timeline() -> None:
    slots = Slots()
    slots.start(slots.runs(10))
    slots.clock.advance(SLOW_SEC)
    more = slots.runs(200)
    found = slots.shares.sort(POOL, [*more, *slots.runs(1, "victim")])
    assert [run.dispatch.tenant for run in found.starting] == ["victim"]
    assert list(found.deferred) == more
    slots.clock.advance(10_000)
    waits = slots.shares.sort(POOL, more).deferred.values()
    assert LONGEST_WAIT_SEC / 2 <= min(waits) < max(waits) <= 1.5 * LONGEST_WAIT_SEC


def test_one_slow_call_among_quick_ones_puts_nothing_off() -> None:
    slots = Slots()
    slots.start(slots.runs(1))
    slots.clock.advance(60)
    slots.start(slots.runs(9))
    assert slots.shares.sort(POOL, slots.runs(1)).deferred == {}


def test_slots_come_back_when_calls_end() -> None:
    slots = Slots()
    first = slots.start(slots.runs(10))
    for run in first:
        slots.shares.ended(run)
    assert slots.shares._in_use == {}
    assert len(slots.start(slots.runs(20))) == 10


def test_whole_share_bounds_nothing() -> None:
    slots = Slots(share=1.0)
    assert len(slots.start(slots.runs(20))) == 20
