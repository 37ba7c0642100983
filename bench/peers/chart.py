"""The document as a chart: for each work a bar of each peer's median, with a line from the least to the most."""

from html import escape

from bench.peers.markdown import TITLES, number
from bench.peers.results import Document, Row, Table
from bench.peers.spread import Spread

WIDTH, BAR, GAP, HEAD = 900, 18, 8, 46
LEFT, RIGHT = 190, 170
NOONDAY_FILL, PEER_FILL = "#d97706", "#94a3b8"


def svg(document: Document) -> str:
    """A drawing without scripts and without anything from elsewhere."""
    titles = {peer.name: peer.title for peer in document.peers}
    parts, top = [], 10
    for table in document.tables:
        rows = [row for row in table.rows if table.figure in row.figures]
        if rows:
            parts.append(_panel(table, rows, titles, top))
            top += HEAD + len(rows) * (BAR + GAP)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top + 10}" width="{WIDTH}" height="{top + 10}" '
        'font-family="sans-serif" font-size="12">'
    )
    return "\n".join([head, f'<rect width="{WIDTH}" height="{top + 10}" fill="white"/>', *parts, "</svg>"]) + "\n"


def _panel(table: Table, rows: list[Row], titles: dict[str, str], top: int) -> str:
    ranked = sorted(rows, key=lambda row: row.figures[table.figure].median, reverse=table.more_is_better)
    longest = max(row.figures[table.figure].most for row in rows) or 1
    better = "more is better" if table.more_is_better else "less is better"
    parts = [
        f'<text x="10" y="{top + 24}" font-weight="bold">{escape(table.work)}: {TITLES[table.figure]}, {better}</text>'
    ]
    for place, row in enumerate(ranked):
        y = top + HEAD - 12 + place * (BAR + GAP)
        parts.append(_bar(row, row.figures[table.figure], titles[row.peer], y, (WIDTH - LEFT - RIGHT) / longest))
    return "\n".join(parts)


def _bar(row: Row, found: Spread, title: str, y: int, scale: float) -> str:
    fill = NOONDAY_FILL if row.peer.startswith("noonday-") else PEER_FILL
    middle, text_y = y + BAR / 2, y + BAR - 4
    least, most = LEFT + found.least * scale, LEFT + found.most * scale
    marks = f" ({', '.join(row.marks)})" if row.marks else ""
    return "\n".join(
        [
            f'<text x="{LEFT - 8}" y="{text_y}" text-anchor="end">{escape(title)}</text>',
            f'<rect x="{LEFT}" y="{y}" width="{found.median * scale:.1f}" height="{BAR}" fill="{fill}"/>',
            f'<line x1="{least:.1f}" y1="{middle}" x2="{most:.1f}" y2="{middle}" stroke="black"/>',
            f'<text x="{most + 6:.1f}" y="{text_y}">{number(found.median)}{escape(marks)}</text>',
        ]
    )
