from hypothesis import given
from hypothesis import strategies as st

from noonday.drivers.kafka.reader import SCALE, ReadAhead
from noonday.model.ids import InstanceId
from noonday.model.message import LogEntry, Tick


def ticks(first: int, count: int) -> list[LogEntry]:
    return [Tick(InstanceId("i-1"), number, 0) for number in range(first, first + count)]


def pages(*sizes: int, start: int = 0) -> ReadAhead:
    """Pages of messages of these sizes; entries are numbered from 0."""
    made = ReadAhead()
    made.reset(start)
    first = 0
    for offset, size in enumerate(sizes, start=start):
        made.add(offset, ticks(first, size), 100 * size)
        first += size
    return made


def test_each_entry_has_an_offset_of_its_own() -> None:
    here = pages(3, 2, start=7)
    assert here.batch_from(7 * SCALE, 1).next_offset == 7 * SCALE + 1
    assert here.batch_from(7 * SCALE + 1, 1).next_offset == 7 * SCALE + 2
    assert here.batch_from(7 * SCALE + 2, 1).next_offset == 8 * SCALE
    whole = here.batch_from(7 * SCALE, 100)
    assert (whole.offset, whole.next_offset, len(whole.entries)) == (7 * SCALE, 9 * SCALE, 5)


def test_a_batch_may_begin_and_end_in_the_middle_of_messages() -> None:
    here = pages(3, 3, 3)
    batch = here.batch_from(1, 6)
    assert batch.entries == tuple(ticks(1, 6))
    assert (batch.offset, batch.next_offset) == (1, 2 * SCALE + 1)
    assert here.batch_from(batch.next_offset, 10).entries == tuple(ticks(7, 2))


def test_an_offset_beyond_the_end_of_a_message_means_the_next_one() -> None:
    here = pages(3, 3)
    assert here.batch_from(5, 10).entries == tuple(ticks(3, 3))
    assert here.batch_from(5, 10).offset == SCALE


def test_messages_without_entries_are_passed() -> None:
    here = pages(0, 2, 0, 0, 1)
    batch = here.batch_from(0, 10)
    assert (batch.offset, batch.next_offset, len(batch.entries)) == (SCALE, 5 * SCALE, 3)


def test_entries_before_the_wanted_offset_are_dropped() -> None:
    here = pages(3, 3, 3)
    assert here.seek(1)
    assert (here.count, here.bytes) == (6, 600)
    assert not here.seek(0)
    assert (here.count, here.bytes, here.next) == (0, 0, 0)


def test_missing_offset_resolves_to_the_next_existing_one() -> None:
    here = ReadAhead()
    assert not here.seek(5)
    here.skip_to(9)
    wanted = here.resolve(5 * SCALE + 3)
    assert wanted == 9 * SCALE
    assert here.seek(9)
    assert here.resolve(9 * SCALE + 1) == 9 * SCALE + 1
    # If the log ever gets as far as the offset that was missing, its entry is there.
    assert here.resolve(5 * SCALE + 3) == 5 * SCALE + 3


def test_repeated_entries_are_not_read_again() -> None:
    here = pages(2, 2)
    here.add(0, ticks(0, 2), 200)
    assert here.batch_from(0, 10).entries == tuple(ticks(0, 4))
    assert here.next == 2


@given(st.lists(st.integers(0, 4), max_size=6), st.data())
def test_in_whatever_steps_the_log_is_read_nothing_is_skipped_or_repeated(
    sizes: list[int], data: st.DataObject
) -> None:
    found: list[LogEntry] = []
    offset = 0
    while True:
        # Another reader continues from the offset alone.
        here = pages(*sizes)
        here.seek(offset // SCALE)
        batch = here.batch_from(offset, data.draw(st.integers(1, 5)))
        if not batch.entries:
            break
        assert batch.next_offset >= batch.offset + len(batch.entries)
        found += batch.entries
        offset = batch.next_offset
    assert found == ticks(0, sum(sizes))


@given(st.lists(st.integers(0, 4), max_size=6), st.integers(0, 20))
def test_offset_plus_a_count_of_entries_skips_no_entry(sizes: list[int], count: int) -> None:
    here = pages(*sizes)
    count = min(count, sum(sizes))
    left = here.batch_from(count, 100).entries
    everything = tuple(ticks(0, sum(sizes)))
    assert len(left) >= len(everything) - count
    assert left == everything[len(everything) - len(left) :]
