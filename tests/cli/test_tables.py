from io import StringIO

from rich.console import Console
from rich.text import Text

from noonday.cli.tables import SHORT, ListTable, shortest_unique


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


def test_ids_become_short_before_a_column_goes() -> None:
    rows = ListTable("NAME", "ID", "CAUSE", spare=("CAUSE",), ids=("ID",))
    rows.add("a", "019a3f2e-4c00-7abc-8def-0123456789ab", "SCHEDULE")
    rows.add("b", "019a3f2e-4c00-7abc-9def-0123456789ab", "SCHEDULE")
    assert "019a3f2e-4c00-7abc-8def-0123456789ab" in drawn(rows, 60)[1]
    assert drawn(rows, 50) == [
        "NAME  ID                    CAUSE",
        "a     019a3f2e-4c00-7abc-8  SCHEDULE",
        "b     019a3f2e-4c00-7abc-9  SCHEDULE",
    ]


def test_short_forms_differ_and_have_a_least_length() -> None:
    assert shortest_unique([]) == SHORT
    assert shortest_unique(["a" * 36, "b" * 36]) == SHORT
    assert shortest_unique(["a" * 30 + "b", "a" * 30 + "c", "z" * 31]) == 31


def test_ids_are_whole_where_rows_become_blocks() -> None:
    rows = ListTable("NAME", "ID", "CAUSE", ids=("ID",))
    rows.add("a", "019a3f2e-4c00-7abc-8def-0123456789ab", "SCHEDULE")
    assert [line.strip() for line in drawn(rows, 30)][:1] == ["a"]
    assert "019a3f2e-4c00-7abc-8def-0123456789ab" in "".join(line.strip() for line in drawn(rows, 30)).replace("id", "")
