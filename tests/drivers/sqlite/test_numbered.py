import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from noonday.drivers.sqlite.numbered import NumberedConnection


@pytest.fixture
def conn() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", factory=NumberedConnection)) as opened:
        yield opened


@pytest.mark.parametrize(
    ("query", "parameters", "row"),
    [
        ("SELECT ?2, ?1, ?2", ("a", "b"), ("b", "a", "b")),
        ("SELECT ?1", ["a"], ("a",)),
        ("SELECT ?, ?", ("a", "b"), ("a", "b")),
        ("SELECT :name", {"name": "a"}, ("a",)),
        ("SELECT 1", (), (1,)),
    ],
)
def test_placeholders_are_bound_without_a_warning(
    conn: sqlite3.Connection, query: str, parameters: object, row: tuple[object, ...]
) -> None:
    # Warnings are errors here. Since Python 3.12, a sequence for numbered placeholders is deprecated.
    assert conn.execute(query, parameters).fetchone() == row  # type: ignore[arg-type]
    assert conn.cursor().execute(query, parameters).fetchone() == row  # type: ignore[arg-type]
