from itertools import count

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from noonday.drivers.kafka.offsets import DispatchBuffer, OffsetTracker
from noonday.model.message import Dispatch
from tests.support.factories import dispatch

HIGH, NORMAL, LOW = 0, 1, 2
PLACE = ("normal", 0)


def buffer(start: int | None = 10) -> tuple[DispatchBuffer, OffsetTracker]:
    """A buffer with one partition."""
    made = DispatchBuffer()
    made.add_partition(PLACE, NORMAL, start)
    return made, made.trackers[PLACE]


def pack(count: int = 3) -> list[Dispatch]:
    return [dispatch() for _ in range(count)]


def test_a_pack_is_done_with_when_all_its_dispatches_are() -> None:
    here, tracker = buffer()
    sent = pack()
    here.add(PLACE, 10, sent)
    assert here.take(10) == sent
    here.ack(sent[:2])
    assert tracker.acked_to() == 10
    here.ack(sent[2:])
    assert tracker.acked_to() == 11


def test_unprocessed_message_holds_back_later_offsets() -> None:
    here, tracker = buffer()
    packs = [pack() for _ in range(3)]
    for offset, each in enumerate(packs, start=10):
        here.add(PLACE, offset, each)
    here.take(100)
    here.ack([*packs[1], *packs[2]])
    assert tracker.acked_to() == 10
    here.ack(packs[0])
    assert tracker.acked_to() == 13


def test_dispatch_that_was_not_taken_is_not_processed() -> None:
    here, tracker = buffer()
    sent = pack()
    here.add(PLACE, 10, sent)
    here.ack(sent)
    assert tracker.acked_to() == 10
    assert here.take(10) == sent


def test_a_message_with_nothing_in_it_is_passed() -> None:
    here, tracker = buffer()
    here.add(PLACE, 10, [])
    assert (tracker.acked_to(), tracker.position) == (11, 11)
    here.add(PLACE, 11, pack())
    here.add(PLACE, 12, [])
    here.ack(here.take(10))
    assert (tracker.acked_to(), tracker.position) == (13, 13)


def test_the_position_passes_messages_with_nothing_in_them() -> None:
    here, tracker = buffer()
    for offset, size in ((10, 1), (11, 0), (12, 1)):
        here.add(PLACE, offset, pack(size))
    here.take(1)
    assert tracker.position == 12


def test_the_position_is_where_handing_out_goes_on() -> None:
    here, tracker = buffer()
    for offset in (10, 11):
        here.add(PLACE, offset, pack(3))
    assert tracker.position == 10
    here.take(2)
    assert tracker.position == 10
    here.take(1)
    assert tracker.position == 11
    here.take(3)
    assert tracker.position == 12


def test_a_partition_whose_start_is_unknown_is_not_committed_before_something_came() -> None:
    here, tracker = buffer(start=None)
    assert tracker.acked_to() is None
    here.add(PLACE, 700, pack())
    assert (tracker.acked_to(), tracker.position) == (700, 700)


def test_messages_that_the_broker_deleted_are_skipped() -> None:
    here, tracker = buffer(start=10)
    here.add(PLACE, 500, pack())
    assert tracker.position == 500
    here.ack(here.take(10))
    assert tracker.acked_to() == 501


def test_higher_lanes_overtake() -> None:
    here = DispatchBuffer()
    for lane in (HIGH, NORMAL, LOW):
        here.add_partition(("t", lane), lane, 0)
    low, normal, high = pack(2), pack(2), pack(2)
    for lane, each in ((LOW, low), (NORMAL, normal), (HIGH, high)):
        here.add(("t", lane), 0, each)
    assert [here.take(3), here.take(3)] == [[*high, normal[0]], [normal[1], *low]]


def test_partitions_are_merged_by_due_time_and_each_stays_in_its_order() -> None:
    here = DispatchBuffer()
    due: dict[int, Dispatch] = {ms: dispatch(due_ms=ms) for ms in (1, 2, 3, 4, 5, 9)}
    for place, packs in {("normal", 0): [(1, 2), (5,)], ("normal", 1): [(9,), (3,)], ("normal", 2): [(4,)]}.items():
        here.add_partition(place, NORMAL, 0)
        for offset, each in enumerate(packs):
            here.add(place, offset, [due[ms] for ms in each])
    assert [each.due_ms for each in here.take(1)] == [1]
    assert [each.due_ms for each in here.take(10)] == [2, 4, 5, 9, 3]


def test_a_lost_partition_is_forgotten_and_the_others_are_not() -> None:
    here, tracker = buffer()
    here.add_partition(("normal", 1), NORMAL, 0)
    mine, others = pack(2), pack(2)
    here.add(PLACE, 10, mine)
    here.add(("normal", 1), 0, others)
    taken = here.take(1)
    here.drop_partitions([PLACE])
    assert here.waiting == 2
    assert here.take(10) == others
    here.ack([*taken, *others])
    assert tracker.acked_to() == 10
    assert here.trackers[("normal", 1)].acked_to() == 1
    here.add(PLACE, 11, pack())
    assert here.take(10) == []


def test_partition_that_comes_back_starts_without_state() -> None:
    here, _ = buffer()
    sent = pack(1)
    here.add(PLACE, 10, sent)
    here.take(1)
    here.drop_partitions([PLACE])
    here.add_partition(PLACE, NORMAL, 10)
    here.ack(sent)
    assert here.trackers[PLACE].acked_to() == 10
    here.add(PLACE, 10, sent)
    assert here.take(1) == sent


def test_offsets_that_begin_again_are_another_partition() -> None:
    here, old = buffer()
    here.add(PLACE, 10, pack(1))
    held = here.take(1)
    here.add(PLACE, 0, pack(1))
    assert here.trackers[PLACE] is not old
    assert here.trackers[PLACE].acked_to() == 0
    here.ack(held)
    assert here.trackers[PLACE].acked_to() == 0


def test_nothing_is_delivered_during_a_rebalance() -> None:
    here, _ = buffer()
    here.add(PLACE, 10, pack(2))
    here.rebalancing = True
    assert here.take(10) == []
    here.rebalancing = False
    assert len(here.take(10)) == 2


def test_every_copy_of_a_dispatch_is_done_with_at_once() -> None:
    here, tracker = buffer()
    sent = dispatch()
    here.add(PLACE, 10, [sent, sent])
    here.add(PLACE, 11, [sent])
    here.take(10)
    here.ack([sent])
    assert tracker.acked_to() == 12


def test_a_copy_in_a_lost_partition_does_not_count() -> None:
    here, _ = buffer()
    here.add_partition(("normal", 1), NORMAL, 0)
    sent = dispatch()
    here.add(PLACE, 10, [sent])
    here.add(("normal", 1), 0, [sent])
    here.take(10)
    here.drop_partitions([PLACE])
    here.ack([sent])
    assert here.trackers[("normal", 1)].acked_to() == 1


def test_buffer_counts_waiting_dispatches_and_bytes() -> None:
    here, _ = buffer()
    here.add_partition(("normal", 1), NORMAL, 0)
    here.add(PLACE, 10, pack(3), 900)
    here.add(("normal", 1), 0, pack(2), 700)
    here.take(1)
    assert (here.waiting, here.bytes) == (4, 1600)
    here.take(3)
    assert (here.waiting, here.bytes) == (1, 700)
    here.drop_partitions([("normal", 1)])
    assert (here.waiting, here.bytes) == (0, 0)


class Offsets(RuleBasedStateMachine):
    """Random histories of a buffer.

    No partition is committed past an unprocessed dispatch, no dispatch is delivered twice without a rebalance, and all
    processed ones are committed in the end.
    """

    def __init__(self) -> None:
        super().__init__()
        self.buffer = DispatchBuffer()
        self.ends = {("t", number): 0 for number in range(3)}
        self.undone: dict[tuple[str, int], dict[int, set[str]]] = {place: {} for place in self.ends}
        self.held: dict[str, Dispatch] = {}
        self.serial = count()
        for place in self.ends:
            self.buffer.add_partition(place, place[1], 0)

    @rule(number=st.integers(0, 2), size=st.integers(0, 3))
    def message_comes(self, number: int, size: int) -> None:
        place = ("t", number)
        sent = [dispatch(f"e-{next(self.serial):06}") for _ in range(size)]
        self.buffer.add(place, self.ends[place], sent)
        self.undone[place][self.ends[place]] = {d.execution_id for d in sent}
        self.ends[place] += 1

    @rule(room=st.integers(0, 5))
    def take(self, room: int) -> None:
        taken = self.buffer.take(room)
        assert len(taken) <= room
        for each in taken:
            assert each.execution_id not in self.held
            self.held[each.execution_id] = each

    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        if self.held:
            ids = data.draw(st.lists(st.sampled_from(sorted(self.held)), unique=True))
            self.buffer.ack([self.held.pop(each) for each in ids])
            for packs in self.undone.values():
                for left in packs.values():
                    left.difference_update(ids)

    @rule(number=st.integers(0, 2))
    def change_hands(self, number: int) -> None:
        """Revoke partitions, and assign them again from the committable offsets."""
        place = ("t", number)
        start = self.buffer.trackers[place].acked_to()
        assert start is not None
        self.buffer.drop_partitions([place])
        for left in self.undone[place].values():
            for each in left:
                self.held.pop(each, None)
        self.undone[place] = {}
        self.buffer.add_partition(place, number, start)
        self.ends[place] = start

    @invariant()
    def nothing_undone_is_passed(self) -> None:
        for place, packs in self.undone.items():
            first_undone = min((offset for offset, left in packs.items() if left), default=self.ends[place])
            assert self.buffer.trackers[place].acked_to() == first_undone
            assert (self.buffer.trackers[place].position or 0) >= first_undone


TestOffsets = Offsets.TestCase
TestOffsets.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
