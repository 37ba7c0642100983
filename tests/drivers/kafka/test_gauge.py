from noonday.drivers.kafka.credit import DEPTH_FACTOR, PoolLoad
from noonday.drivers.kafka.member import CommitMetadata
from tests.support.factories import NOW_MS

PLACE, OTHER = ("normal", 0), ("normal", 1)


def word(position: int = 0, **said: object) -> CommitMetadata:
    return CommitMetadata(
        **{"position": position, "at_ms": NOW_MS, "mean_dispatches": 10.0, "concurrency": 5, "worker": "w-1", **said}  # type: ignore[arg-type]
    )


def note(
    load: PoolLoad, end: int, said: CommitMetadata | None, now: float = 0.0, now_ms: int = NOW_MS, committed: int = 0
) -> None:
    load.update({PLACE: end}, {PLACE: (committed, said)}, now, now_ms)


def test_what_workers_have_not_taken_waits() -> None:
    load = PoolLoad()
    note(load, end=7, said=word(4))
    assert load.depth == 30


def test_a_parked_message_does_not_make_a_pool_look_deep() -> None:
    load = PoolLoad()
    note(load, end=1_000, said=word(1_000), committed=3)
    assert load.depth == 0


def test_a_pool_may_be_some_times_as_deep_as_its_workers_have_room() -> None:
    load = PoolLoad()
    load.update({PLACE: 0, OTHER: 0}, {PLACE: (0, word()), OTHER: (0, word(worker="w-2", concurrency=7))}, 0.0, NOW_MS)
    assert load.limit == DEPTH_FACTOR * 12


def test_a_worker_with_several_partitions_is_one_worker() -> None:
    load = PoolLoad()
    load.update({PLACE: 0, OTHER: 0}, {PLACE: (0, word()), OTHER: (0, word(9))}, 0.0, NOW_MS)
    assert load.concurrency == 5


def test_a_partition_that_was_left_says_nothing_about_who_left_it() -> None:
    load = PoolLoad()
    load.update({PLACE: 0, OTHER: 0}, {PLACE: (0, word()), OTHER: (0, word(concurrency=0))}, 0.0, NOW_MS)
    assert load.concurrency == 5
    load.update({PLACE: 0, OTHER: 0}, {p: (0, word(concurrency=0)) for p in (PLACE, OTHER)}, 0.2, NOW_MS)
    assert load.concurrency == 0


def test_a_worker_that_says_nothing_for_ten_seconds_is_not_there() -> None:
    load = PoolLoad()
    note(load, end=0, said=word())
    note(load, end=0, said=word(), now=9.9, now_ms=NOW_MS + 9_900)
    assert load.concurrency == 5
    note(load, end=0, said=word(), now=10.1, now_ms=NOW_MS + 10_100)
    assert load.concurrency == 0


def test_a_worker_whose_clock_is_wrong_is_there_while_it_speaks() -> None:
    load = PoolLoad()
    note(load, end=0, said=word(at_ms=NOW_MS - 3_600_000))
    assert load.concurrency == 0
    note(load, end=0, said=word(at_ms=NOW_MS - 3_599_000), now=1.0, now_ms=NOW_MS + 1_000)
    assert load.concurrency == 5
    note(load, end=0, said=word(at_ms=NOW_MS - 3_599_000), now=11.1, now_ms=NOW_MS + 11_100)
    assert load.concurrency == 0


def test_a_pool_may_be_as_deep_as_what_it_took_in_the_last_second_and_a_little_more() -> None:
    load = PoolLoad()
    for tenth in range(31):
        note(load, end=tenth * 10, said=word(tenth * 10), now=tenth / 10)
    assert 1_000 < load.limit <= 1_320
    note(load, end=300, said=word(300), now=60.0)
    assert load.limit == DEPTH_FACTOR * 5


def test_a_pool_that_takes_all_it_is_given_is_given_more_quickly() -> None:
    """Of a burst, a pool of a hundred is given 16,700 a second within two seconds."""
    load, now, end = PoolLoad(), 0.0, 0
    note(load, end, word(end, concurrency=100, mean_dispatches=1.0), now)
    while load.limit < 16_700 * 0.4:
        now += 0.2
        end += int(load.limit - load.depth)
        note(load, end, word(end, concurrency=100, mean_dispatches=1.0), now)
    assert now < 2.0


def test_offsets_that_begin_again_take_nothing_back() -> None:
    load = PoolLoad()
    note(load, end=1_000, said=word(1_000))
    note(load, end=5, said=word(2), now=0.2)
    assert load.depth == 30
    assert load.taken == 0


def test_a_partition_nobody_has_spoken_at_is_as_deep_as_it_is_long() -> None:
    load = PoolLoad()
    load.update({PLACE: 5}, {}, 0.0, NOW_MS)
    assert (load.depth, load.concurrency) == (5, 0)
