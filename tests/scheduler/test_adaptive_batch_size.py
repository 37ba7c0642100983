from noonday.scheduler.dispatcher import FLIGHT_SEC, LEAST, AdaptiveBatchSize


def test_batches_that_take_too_long_become_smaller() -> None:
    stride = AdaptiveBatchSize(2000)
    stride.note(2000, FLIGHT_SEC * 1.25)
    assert 1590 <= stride.now <= 1600
    before = stride.now
    stride.note(before, FLIGHT_SEC * 100)
    assert stride.now == before // 2, "one that was held up halves them and no more"
    for _ in range(20):
        stride.note(stride.now, FLIGHT_SEC * 10)
    assert stride.now == LEAST


def test_batches_that_are_quick_become_larger_again() -> None:
    stride = AdaptiveBatchSize(2000)
    for _ in range(20):
        stride.note(stride.now, FLIGHT_SEC * 10)
    for _ in range(20):
        stride.note(stride.now, FLIGHT_SEC / 10)
    assert stride.now == 2000


def test_small_batches_say_nothing_of_large_ones() -> None:
    stride = AdaptiveBatchSize(2000)
    stride.note(10, FLIGHT_SEC * 10)
    assert stride.now == 2000


def test_what_was_allowed_is_never_exceeded() -> None:
    stride = AdaptiveBatchSize(50)
    stride.note(50, FLIGHT_SEC / 10)
    assert stride.now == 50
    stride.note(50, FLIGHT_SEC * 10)
    assert stride.now == 50
