from io import StringIO

from rich.console import Console
from rich.text import Text

from noonday.cli.tables import ListTable


def drawn(rows: ListTable, width: int) -> list[str]:
    out = StringIO()
    Console(file=out, width=width, markup=False).print(rows)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def sample() -> ListTable:
    rows = ListTable("ID", "NAME", "CAUSE", "ERROR", cut=("NAME", "ERROR"), spare=("CAUSE",))
    rows.add("0123456789", "a rather long name", "SCHEDULE", Text("RuntimeError: something long went wrong"))
    return rows


def test_with_room_enough_everything_is_shown_whole() -> None:
    assert drawn(sample(), 200) == [
        "ID          NAME                CAUSE     ERROR",
        "0123456789  a rather long name  SCHEDULE  RuntimeError: something long went wrong",
    ]


def test_long_cells_are_cut_to_one_line_and_ids_stay_whole() -> None:
    header, row = drawn(sample(), 50)
    assert "CAUSE" in header
    assert row.startswith("0123456789  ")
    assert row.count("…") == 2


def test_a_spare_column_goes_before_anything_unreadable_is_shown() -> None:
    header, row = drawn(sample(), 30)
    assert "CAUSE" not in header
    assert row.startswith("0123456789  ")


def test_brackets_are_not_read_as_markup() -> None:
    rows = ListTable("NAME")
    rows.add("[bold]x[/bold]")
    assert drawn(rows, 40)[1] == "[bold]x[/bold]"
