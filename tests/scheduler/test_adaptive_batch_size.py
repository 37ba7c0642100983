from noonday.scheduler.dispatcher import MIN_BATCH, TARGET_BATCH_SEC, AdaptiveBatchSize


def test_batches_that_take_too_long_become_smaller() -> None:
    batch_size = AdaptiveBatchSize(2000)
    batch_size.note(2000, TARGET_BATCH_SEC * 1.25)
    assert 1590 <= batch_size.size <= 1600
    before = batch_size.size
    batch_size.note(before, TARGET_BATCH_SEC * 100)
    assert batch_size.size == before // 2, "one slow batch halves the size and no more"
    for _ in range(20):
        batch_size.note(batch_size.size, TARGET_BATCH_SEC * 10)
    assert batch_size.size == MIN_BATCH


def test_batches_that_are_quick_become_larger_again() -> None:
    batch_size = AdaptiveBatchSize(2000)
    for _ in range(20):
        batch_size.note(batch_size.size, TARGET_BATCH_SEC * 10)
    for _ in range(20):
        batch_size.note(batch_size.size, TARGET_BATCH_SEC / 10)
    assert batch_size.size == 2000


def test_small_batches_do_not_change_the_size() -> None:
    batch_size = AdaptiveBatchSize(2000)
    batch_size.note(10, TARGET_BATCH_SEC * 10)
    assert batch_size.size == 2000


def test_configured_batch_size_is_never_exceeded() -> None:
    batch_size = AdaptiveBatchSize(50)
    batch_size.note(50, TARGET_BATCH_SEC / 10)
    assert batch_size.size == 50
    batch_size.note(50, TARGET_BATCH_SEC * 10)
    assert batch_size.size == 50
