import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonday.model.ids import InstanceId, WorkerId
from noonday.model.liveness import TICKS_TO_JUDGE, Liveness
from noonday.model.message import Beat, LogEntry, Tick
from tests.support.factories import NOW_MS, WORKER

ME, ANOTHER = InstanceId("i-1/a"), InstanceId("i-2/b")


def tick(number: int, recorder: InstanceId = ME) -> Tick:
    return Tick(recorder, number, NOW_MS)


def beat(worker: WorkerId = WORKER) -> Beat:
    return Beat(worker, NOW_MS)


def after(*entries: LogEntry) -> Liveness:
    liveness = Liveness(ME)
    liveness.note(liveness.read(entries))
    return liveness


def test_worker_is_lost_after_six_ticks_without_a_message() -> None:
    ticks = [tick(number) for number in range(1, TICKS_TO_JUDGE + 1)]
    assert after(beat(), *ticks[:-1]).silent([WORKER]) == []
    assert after(beat(), *ticks).silent([WORKER]) == [WORKER]
    assert after(*ticks[:-1], beat(), ticks[-1]).silent([WORKER]) == []


def test_worker_that_never_reported_is_lost_after_six_ticks() -> None:
    assert after(*(tick(number) for number in range(1, TICKS_TO_JUDGE + 1))).silent([WORKER]) == [WORKER]


def test_a_tick_that_is_replayed_counts_once() -> None:
    liveness = after(beat(), tick(1), *[tick(1)] * 10)
    assert liveness.ticks == 1
    assert liveness.silent([WORKER]) == []


def test_ticks_of_another_recorder_do_not_count() -> None:
    assert after(beat(), *(tick(number, ANOTHER) for number in range(1, 20))).ticks == 0


def test_a_batch_that_was_not_committed_does_not_count() -> None:
    liveness = after(beat())
    for _ in range(TICKS_TO_JUDGE):
        liveness.read([tick(1)])
    assert liveness.ticks == 0
    assert liveness.silent([WORKER]) == []


entries = st.lists(
    st.one_of(st.just("beat"), st.just("tick"), st.integers(1, 30).map(lambda number: f"again {number}")), max_size=60
)


@pytest.mark.slow
@given(entries, st.lists(st.integers(0, 4), min_size=60, max_size=60))
def test_neither_retries_nor_batches_nor_replays_change_the_count(kinds: list[str], retries: list[int]) -> None:
    """The verdict depends on the distinct ticks since the worker's last entry, however often each entry is read before the
    commit."""
    liveness, number, since = Liveness(ME), 0, 0
    for each, times in zip(kinds, retries, strict=False):
        if each == "beat":
            entry: LogEntry = beat()
            since = number
        elif each == "tick":
            number += 1
            entry = tick(number)
        else:
            entry = msgspec.structs.replace(tick(1), number=min(int(each.split()[1]), number))
        for _ in range(times):
            liveness.read([entry])
        liveness.note(liveness.read([entry]))
    assert liveness.ticks == number
    assert bool(liveness.silent([WORKER])) == (number - since >= TICKS_TO_JUDGE)
