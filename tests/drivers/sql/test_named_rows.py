"""Rows as structs, by the names of their columns."""

import msgspec
import pytest

from noonday.drivers.sql.named_rows import gap_in, structs_of


class Point(msgspec.Struct, frozen=True):
    x: int
    y: int
    note: str = ""


class Line(msgspec.Struct, frozen=True):
    x: int
    y: int = 0
    note: str = "n"
    width: int = 3
    end: int | None = None


def test_columns_in_the_order_of_the_fields() -> None:
    assert structs_of(Point, ["x", "y"], [(1, 2), (3, 4)]) == [Point(1, 2), Point(3, 4)]


def test_columns_in_another_order() -> None:
    assert structs_of(Point, ["y", "x"], [(2, 1)]) == [Point(1, 2)]


def test_a_column_in_the_middle_that_the_struct_lacks_is_left_out() -> None:
    assert structs_of(Point, ["x", "z", "y"], [(1, 9, 2)]) == [Point(1, 2)]


def test_columns_behind_the_fields_are_left_out() -> None:
    assert structs_of(Point, ["x", "y", "note", "batch"], [(1, 2, "n", 7)]) == [Point(1, 2, "n")]


def test_fields_that_columns_leave_out_get_their_defaults() -> None:
    assert structs_of(Line, ["x", "y", "end", "batch"], [(1, 2, 4, 9)]) == [Line(1, 2, "n", 3, 4)]
    assert structs_of(Line, ["x", "end"], [(1, 4)]) == [Line(1, end=4)]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["x", "y", "end"], (2, ("n", 3))),
        (["x", "note", "width"], (1, (0,))),
        (["x", "y"], (2, ())),
        (["x", "y", "other"], (2, ())),
        (["x", "note", "end"], (1, ())),
        (["y", "x"], (0, ())),
        (["y", "note"], (0, ())),
    ],
    ids=["one gap", "another gap", "none", "no field", "two gaps", "another order", "no default"],
)
def test_a_gap_is_known_by_its_place_and_its_defaults(
    names: list[str], expected: tuple[int, tuple[object, ...]]
) -> None:
    assert gap_in(Line, names) == expected


def test_no_rows_make_no_structs() -> None:
    assert structs_of(Point, ["x", "y"], []) == []
