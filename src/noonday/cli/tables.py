"""Tables that stay readable on a narrow terminal: one line per row, and ids are never cut."""

from collections.abc import Iterable, Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

GAP = 2
LEAST = 8
"""Minimum width in characters of a column that is cut or folded."""


class ListTable:
    """Table with headers that fits the width of the terminal.

    If the rows are too wide, `spare` columns are dropped, the last one first. Then `cut` columns are shortened to one
    line, and `fold` columns are wrapped. Output to a pipe is complete.
    """

    def __init__(
        self,
        *headers: str,
        right: Sequence[str] = (),
        cut: Sequence[str] = (),
        fold: Sequence[str] = (),
        spare: Sequence[str] = (),
    ) -> None:
        self._headers = headers
        self._right = right
        self._cut = cut
        self._fold = fold
        self._spare = spare
        self._rows: list[list[Text]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, *cells: str | Text) -> None:
        self._rows.append([cell if isinstance(cell, Text) else Text(cell) for cell in cells])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        kept = self._fitting(options.max_width)
        grid = _grid(show_header=True)
        for at in kept:
            header = self._headers[at]
            flexible = header in self._cut or header in self._fold
            justify: Any = "right" if header in self._right else "left"
            grid.add_column(header, justify=justify, no_wrap=not flexible, min_width=min(LEAST, self._width(at)))
        for row in self._rows:
            grid.add_row(*(self._cell(at, row[at]) for at in kept))
        yield grid

    def _fitting(self, width: int) -> list[int]:
        kept = list(range(len(self._headers)))
        for header in reversed(self._spare):
            if sum(self._least(at) + GAP for at in kept) - GAP > width:
                kept.remove(self._headers.index(header))
        return kept

    def _least(self, at: int) -> int:
        header = self._headers[at]
        return min(LEAST, self._width(at)) if header in self._cut or header in self._fold else self._width(at)

    def _width(self, at: int) -> int:
        return max(cell_len(self._headers[at]), *(row[at].cell_len for row in self._rows), 0)

    def _cell(self, at: int, cell: Text) -> Text:
        if self._headers[at] in self._cut:
            cell.no_wrap, cell.overflow = True, "ellipsis"
        return cell


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
