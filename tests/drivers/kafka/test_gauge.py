from noonday.drivers.kafka.credit import DEPTH_FACTOR, DEPTH_SEC, PoolLoad
from noonday.drivers.kafka.member import CommitMetadata
from tests.support.factories import NOW_MS

PARTITION, OTHER = ("normal", 0), ("normal", 1)


def noted(position: int = 0, **fields: object) -> CommitMetadata:
    return CommitMetadata(
        **{"position": position, "at_ms": NOW_MS, "mean_dispatches": 10.0, "concurrency": 5, "worker": "w-1", **fields}  # type: ignore[arg-type]
    )


def note(
    gauge: PoolLoad,
    end: int,
    metadata: CommitMetadata | None,
    now: float = 0.0,
    now_ms: int = NOW_MS,
    committed: int = 0,
) -> None:
    gauge.update({PARTITION: end}, {PARTITION: (committed, metadata)}, now, now_ms)


def test_untaken_messages_count_as_depth() -> None:
    gauge = PoolLoad()
    note(gauge, end=7, metadata=noted(4))
    assert gauge.depth == 30


def test_a_parked_message_does_not_make_a_pool_look_deep() -> None:
    gauge = PoolLoad()
    note(gauge, end=1_000, metadata=noted(1_000), committed=3)
    assert gauge.depth == 0


def test_a_pool_may_be_some_times_as_deep_as_its_workers_have_room() -> None:
    gauge = PoolLoad()
    gauge.update(
        {PARTITION: 0, OTHER: 0},
        {PARTITION: (0, noted()), OTHER: (0, noted(worker="w-2", concurrency=7))},
        0.0,
        NOW_MS,
    )
    assert gauge.limit == DEPTH_FACTOR * 12


def test_a_worker_with_several_partitions_is_one_worker() -> None:
    gauge = PoolLoad()
    gauge.update({PARTITION: 0, OTHER: 0}, {PARTITION: (0, noted()), OTHER: (0, noted(9))}, 0.0, NOW_MS)
    assert gauge.concurrency == 5


def test_partition_that_was_left_does_not_count_its_former_worker() -> None:
    gauge = PoolLoad()
    gauge.update(
        {PARTITION: 0, OTHER: 0},
        {PARTITION: (0, noted()), OTHER: (0, noted(concurrency=0))},
        0.0,
        NOW_MS,
    )
    assert gauge.concurrency == 5
    gauge.update({PARTITION: 0, OTHER: 0}, {p: (0, noted(concurrency=0)) for p in (PARTITION, OTHER)}, 0.2, NOW_MS)
    assert gauge.concurrency == 0


def test_worker_that_is_silent_for_ten_seconds_does_not_count() -> None:
    gauge = PoolLoad()
    note(gauge, end=0, metadata=noted())
    note(gauge, end=0, metadata=noted(), now=9.9, now_ms=NOW_MS + 9_900)
    assert gauge.concurrency == 5
    note(gauge, end=0, metadata=noted(), now=10.1, now_ms=NOW_MS + 10_100)
    assert gauge.concurrency == 0


def test_a_worker_whose_clock_is_wrong_is_there_while_it_speaks() -> None:
    gauge = PoolLoad()
    note(gauge, end=0, metadata=noted(at_ms=NOW_MS - 3_600_000))
    assert gauge.concurrency == 0
    note(gauge, end=0, metadata=noted(at_ms=NOW_MS - 3_599_000), now=1.0, now_ms=NOW_MS + 1_000)
    assert gauge.concurrency == 5
    note(gauge, end=0, metadata=noted(at_ms=NOW_MS - 3_599_000), now=11.1, now_ms=NOW_MS + 11_100)
    assert gauge.concurrency == 0


def test_a_pool_may_be_as_deep_as_its_workers_complete_in_the_stated_time() -> None:
    gauge = PoolLoad()
    for tenth in range(31):
        note(gauge, end=0, metadata=noted(acked=tenth * 100, at_ms=NOW_MS + tenth * 100), now=tenth / 10)
    assert gauge.limit == DEPTH_SEC * 1_000


def test_a_pool_that_stood_still_may_soon_be_as_deep_as_before() -> None:
    """A stall must not make the pool shallow that ends it. After ten seconds the rate is forgotten, but for a remainder."""
    gauge = PoolLoad()
    note(gauge, end=0, metadata=noted())
    note(gauge, end=0, metadata=noted(acked=1_000, at_ms=NOW_MS + 1_000), now=1.0)
    note(gauge, end=0, metadata=noted(acked=1_000, at_ms=NOW_MS + 2_000), now=2.0)
    assert gauge.limit > DEPTH_SEC * 700
    note(gauge, end=0, metadata=noted(acked=1_000, at_ms=NOW_MS + 11_000), now=11.0)
    assert gauge.limit < DEPTH_SEC * 70


def test_rates_of_several_workers_add_up() -> None:
    gauge = PoolLoad()
    for second in range(2):
        metadata = {
            PARTITION: (0, noted(acked=second * 300, at_ms=NOW_MS + second * 1_000)),
            OTHER: (0, noted(worker="w-2", acked=second * 700, at_ms=NOW_MS + second * 1_000)),
        }
        gauge.update({PARTITION: 0, OTHER: 0}, metadata, float(second), NOW_MS + second * 1_000)
    assert gauge.limit == DEPTH_SEC * 1_000


def test_slow_handlers_do_not_make_a_pool_deep() -> None:
    """A worker takes what it has room for at once. Only what it completes counts."""
    gauge = PoolLoad()
    note(gauge, end=400, metadata=noted(0))
    note(gauge, end=400, metadata=noted(20, at_ms=NOW_MS + 200), now=0.2)
    assert gauge.limit == DEPTH_FACTOR * 5


def test_a_pool_that_completes_all_it_is_given_is_given_more_quickly() -> None:
    """A pool of a hundred slots gets 16,700 dispatches a second of a burst within a second."""
    gauge, given, now_ms = PoolLoad(), 0, NOW_MS
    metadata = noted(concurrency=100, mean_dispatches=1.0)
    note(gauge, 0, metadata)
    while gauge.limit < 16_700 * DEPTH_SEC:
        given += int(gauge.limit)
        now_ms += 140
        metadata = noted(given, acked=given, at_ms=now_ms, concurrency=100, mean_dispatches=1.0)
        note(gauge, given, metadata, (now_ms - NOW_MS) / 1_000, now_ms)
    assert now_ms - NOW_MS < 1_000


def test_a_worker_that_counts_from_zero_again_takes_nothing_back() -> None:
    gauge = PoolLoad()
    note(gauge, end=1_000, metadata=noted(1_000, acked=500))
    note(gauge, end=5, metadata=noted(2, acked=3, at_ms=NOW_MS + 200), now=0.2)
    assert (gauge.depth, gauge.limit) == (30, DEPTH_FACTOR * 5)


def test_partition_without_commits_counts_all_its_messages() -> None:
    gauge = PoolLoad()
    gauge.update({PARTITION: 5}, {}, 0.0, NOW_MS)
    assert (gauge.depth, gauge.concurrency) == (5, 0)
