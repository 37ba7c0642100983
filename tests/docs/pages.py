"""The documents as data: their tables, their code, and the paths they name."""

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SOURCE = ROOT / "src" / "noonday"
PAGES = sorted(DOCS.rglob("*.md"))
HOWTOS = sorted((DOCS / "howto").glob("*.md"))

_FENCE = re.compile(r"^(?:<!-- not run: (?P<why>.+?) -->\n)?```(?P<language>\w+)\n(?P<text>.*?)^```$", re.M | re.S)
_ROW = re.compile(r"^\|(.+)\|$", re.M)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@dataclass(frozen=True)
class Block:
    """A piece of code in a page."""

    page: Path
    line: int
    """The number of its first line."""
    language: str
    text: str
    not_run: str | None
    """The reason why no test runs it."""

    @property
    def name(self) -> str:
        return f"{name_of(self.page)}:{self.line}"


def blocks(page: Path, language: str) -> list[Block]:
    text = page.read_text()
    found = []
    for fence in _FENCE.finditer(text):
        line = text[: fence.start("text")].count("\n") + 1
        found.append(Block(page, line, fence["language"], fence["text"], fence["why"]))
    return [block for block in found if block.language == language]


def table(page: str, *head: str) -> list[list[str]]:
    """Return the rows of the table whose header begins with these words, without the header.

    There must be exactly one table.
    """
    found = [rows[1:] for rows in tables(DOCS / page) if tuple(rows[0][: len(head)]) == head]
    assert len(found) == 1, f"{page} has {len(found)} tables that begin with {head}"
    return found[0]


def tables(page: Path) -> list[list[list[str]]]:
    """Return every table of a page: its header, then its rows, without the separator."""
    runs = re.split(r"\n(?!\|)", without_code(page.read_text()))
    rows = [[_cells(row) for row in _ROW.findall(run)] for run in runs]
    return [[head, *rest] for head, _line, *rest in (run for run in rows if len(run) > 2)]


def without_code(text: str) -> str:
    return _FENCE.sub("", text)


def spans(page: Path) -> list[str]:
    """Return the text between backquotes in the prose of a page."""
    return re.findall(r"`([^`\n]+)`", without_code(page.read_text()))


def row(*cells: object) -> str:
    """Return the source of a table row."""
    return f"| {' | '.join(str(cell) for cell in cells)} |".replace("|  |", "| |")


@cache
def names_in(path: Path) -> frozenset[str]:
    """Return everything that a Python file defines: functions, classes, their members, constants; `Class.member` for
    members."""
    return frozenset(_names(ast.parse(path.read_text()).body, ""))


def _names(body: list[ast.stmt], prefix: str) -> list[str]:
    found = []
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.append(prefix + node.name)
        if isinstance(node, ast.ClassDef):
            found += _names(node.body, f"{node.name}.")
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found += [prefix + target.id for target in targets if isinstance(target, ast.Name)]
    return found


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.split("|")]
