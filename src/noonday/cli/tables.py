"""Tables that stay readable on a narrow terminal: ids stay unique, and rows become blocks where lines are too short."""

from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

GAP = 2
LEAST = 8
"""Minimum width in characters of a column that is cut."""
SHORT = 18
"""Least length of the short form of an id: its time, in milliseconds, and twelve random bits."""
LEAST_FOLDED = 16
"""Minimum width in characters of a column that is folded: longer than most words, which would be cut."""


class ListTable:
    """Table with headers that fits the width of the terminal.

    If the rows are too wide, `ids` columns show the short forms of ids, which commands accept. Then `spare` columns are
    dropped, the last one first. Then `cut` columns are shortened to one
    line, and `fold` columns are wrapped. If that is not enough, each row becomes a block of complete values, with the
    first column as its title. Output to a pipe is complete.
    """

    def __init__(
        self,
        *headers: str,
        right: Sequence[str] = (),
        cut: Sequence[str] = (),
        fold: Sequence[str] = (),
        spare: Sequence[str] = (),
        ids: Sequence[str] = (),
    ) -> None:
        self._headers = headers
        self._right = right
        self._cut = cut
        self._fold = fold
        self._spare = spare
        self._ids = ids
        self._rows: list[list[Text]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, *cells: str | Text) -> None:
        self._rows.append([cell if isinstance(cell, Text) else Text(cell) for cell in cells])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self._ids and self._least_width(range(len(self._headers))) > options.max_width:
            short = self._with_short_ids()
            if short._least_width(short._fitting(options.max_width)) <= options.max_width:
                yield short
                return
        kept = self._fitting(options.max_width)
        if self._least_width(kept) > options.max_width:
            yield from map(self._block, self._rows)
            return
        grid = _grid(show_header=True)
        for at in kept:
            header = self._headers[at]
            flexible = header in self._cut or header in self._fold
            justify: Any = "right" if header in self._right else "left"
            grid.add_column(header, justify=justify, no_wrap=not flexible, min_width=self._least(at))
        for row in self._rows:
            grid.add_row(*(self._cell(at, row[at]) for at in kept))
        yield grid

    def _with_short_ids(self) -> "ListTable":
        short = ListTable(*self._headers, right=self._right, cut=self._cut, fold=self._fold, spare=self._spare)
        columns = {self._headers.index(header) for header in self._ids}
        length = shortest_unique({row[at].plain for row in self._rows for at in columns})
        for row in self._rows:
            short.add(*(cell[:length] if at in columns else cell for at, cell in enumerate(row)))
        return short

    def _fitting(self, width: int) -> list[int]:
        kept = list(range(len(self._headers)))
        for header in reversed(self._spare):
            if self._least_width(kept) > width:
                kept.remove(self._headers.index(header))
        return kept

    def _least_width(self, columns: Sequence[int]) -> int:
        return sum(self._least(at) + GAP for at in columns) - GAP

    def _block(self, row: Sequence[Text]) -> RenderableType:
        """Return the name of a row, and below it the other values that it has, each wrapped."""
        values = [
            (header.lower(), cell)
            for header, cell in zip(self._headers[1:], row[1:], strict=True)
            if cell.plain not in ("", "-")
        ]
        title = row[0].copy() if row[0].plain != "-" else Text("(no name)")
        if title.plain.isdigit():
            title = Text(f"{self._headers[0].lower()} {title.plain}")
        title.stylize("bold")
        return Group(title, Padding(facts(values), (0, 0, 0, GAP)))

    def _least(self, at: int) -> int:
        header = self._headers[at]
        if header in self._fold:
            return min(LEAST_FOLDED, self._width(at))
        return min(LEAST, self._width(at)) if header in self._cut else self._width(at)

    def _width(self, at: int) -> int:
        return max(cell_len(self._headers[at]), *(row[at].cell_len for row in self._rows), 0)

    def _cell(self, at: int, cell: Text) -> Text:
        if self._headers[at] in self._cut:
            cell.no_wrap, cell.overflow = True, "ellipsis"
        return cell


def shortest_unique(ids: Collection[str]) -> int:
    """Return the least length, SHORT or more, at which the beginnings of all ids differ."""
    ordered = sorted(ids)
    length = SHORT
    for one, next_one in pairwise(ordered):
        while one[:length] == next_one[:length] and length < len(one):
            length += 1
    return length


def facts(pairs: Iterable[tuple[str, RenderableType | None]]) -> Table:
    """Return a two-column table of names and values. Omits values that are None."""
    grid = _grid(show_header=False)
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in pairs:
        if value is not None:
            grid.add_row(name, value)
    return grid


def _grid(*, show_header: bool) -> Table:
    return Table(box=None, show_header=show_header, header_style="bold", pad_edge=False, padding=(0, GAP, 0, 0))
