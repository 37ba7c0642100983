from noonday.drivers.redis.heads import Heads, score_of
from tests.support.factories import NOW_MS

PLENTY = {"etl": 1, "mail": 1}


def known(*pools: str, at_ms: int = NOW_MS) -> list[bytes]:
    return [word for pool in pools for word in (pool.encode(), b"%d" % score_of(at_ms, 0))]


def test_nothing_is_noted_of_partitions_that_are_not_ours() -> None:
    heads = Heads()
    assert not heads.note([(1, "etl", score_of(NOW_MS, 0))])
    assert 1 not in heads
    assert heads.next_ready_ms([1], PLENTY, 0) is None


def test_only_an_entry_before_all_known_ones_is_news() -> None:
    heads = Heads()
    heads.read(1, known("etl"))
    assert not heads.note([(1, "etl", score_of(NOW_MS, 0))])
    assert heads.note([(1, "mail", score_of(NOW_MS + 5, 0))])
    assert heads.note([(1, "etl", score_of(NOW_MS - 5, 0))])
    assert heads.next_ready_ms([1], PLENTY, 0) == NOW_MS - 5
    assert heads.next_ready_ms([1], {"mail": 1}, 0) == NOW_MS + 5


def test_entry_noted_during_a_read_is_not_overwritten_by_the_read() -> None:
    heads = Heads()
    heads.read(1, known("etl"))
    with heads.reading():
        heads.note([(1, "etl", score_of(NOW_MS - 5, 0)), (2, "etl", score_of(NOW_MS - 7, 0))])
        heads.read(1, known("etl"))
        heads.read(2, [])
    assert heads.next_ready_ms([1], PLENTY, 0) == NOW_MS - 5
    assert heads.next_ready_ms([2], PLENTY, 0) == NOW_MS - 7


def test_a_pool_that_has_nothing_left_is_not_due() -> None:
    heads = Heads()
    heads.read(1, known("etl", "mail"))
    assert heads.due([1, 2], score_of(NOW_MS, 1), PLENTY) == [(1, ["etl", "mail"])]
    heads.read_some(1, ["etl"], [b""])
    assert heads.due([1, 2], score_of(NOW_MS, 1), PLENTY) == [(1, ["mail"])]


def test_patience_delays_early_entries_only() -> None:
    heads = Heads()
    heads.read(1, [b"etl", b"%d" % score_of(NOW_MS, 1), b"mail", b"%d" % score_of(NOW_MS + 30, 0)])
    assert heads.next_ready_ms([1], PLENTY, 25) == NOW_MS + 25
    assert heads.next_ready_ms([1], PLENTY, 60) == NOW_MS + 30
