"""Pages end early if their rows are large."""

from noonday.intake.paging import PAGE_BYTES, bytes_of, within_page
from tests.support.factories import execution


def test_small_rows_fill_the_page() -> None:
    assert list(within_page([1, 2, 3], lambda row: row)) == [1, 2, 3]


def test_page_ends_before_it_exceeds_its_size() -> None:
    half = PAGE_BYTES // 2
    assert list(within_page([half, half, 1], lambda row: row)) == [half, half]


def test_page_has_at_least_one_row() -> None:
    assert list(within_page([PAGE_BYTES + 1, 1], lambda row: row)) == [PAGE_BYTES + 1]


def test_size_of_an_execution_is_that_of_progress_result_and_failure() -> None:
    assert bytes_of(execution(progress=b"12", result=b"345", failure="6")) == 6
