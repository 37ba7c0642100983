import os
from pathlib import Path

import pytest

from noonday.crypto.private_file import change_private, read_or_create_private, read_private


def test_second_creator_reads_the_file_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "secret"

    def make_too_late() -> str:
        read_or_create_private(path, lambda: "first")
        return "second"

    assert read_or_create_private(path, make_too_late) == "first"
    assert read_private(path) == "first"
    assert os.listdir(tmp_path) == ["secret"]


def test_a_change_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    read_or_create_private(path, lambda: "before")
    with pytest.raises(ZeroDivisionError):
        change_private(path, lambda text: str(1 / 0))
    assert read_private(path) == "before"
    assert os.listdir(tmp_path) == ["secret"]
