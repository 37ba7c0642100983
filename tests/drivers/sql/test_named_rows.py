"""Rows as structs, by the names of their columns."""

import msgspec

from noonday.drivers.sql.named_rows import structs_of


class Point(msgspec.Struct, frozen=True):
    x: int
    y: int
    note: str = ""


def test_columns_in_the_order_of_the_fields() -> None:
    assert structs_of(Point, ["x", "y"], [(1, 2), (3, 4)]) == [Point(1, 2), Point(3, 4)]


def test_columns_in_another_order() -> None:
    assert structs_of(Point, ["y", "x"], [(2, 1)]) == [Point(1, 2)]


def test_a_column_in_the_middle_that_the_struct_lacks_is_left_out() -> None:
    assert structs_of(Point, ["x", "z", "y"], [(1, 9, 2)]) == [Point(1, 2)]


def test_columns_behind_the_fields_are_left_out() -> None:
    assert structs_of(Point, ["x", "y", "note", "batch"], [(1, 2, "n", 7)]) == [Point(1, 2, "n")]


def test_no_rows_make_no_structs() -> None:
    assert structs_of(Point, ["x", "y"], []) == []
