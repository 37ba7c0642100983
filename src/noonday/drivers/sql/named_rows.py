"""Make structs of rows by the names of their columns."""

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

S = TypeVar("S", bound=msgspec.Struct)


def structs_of(kind: type[S], names: Sequence[str], rows: Sequence[Any]) -> list[S]:
    """Make a struct of each row. Columns that the struct lacks are left out; fields without a column keep their default.

    Columns in the order of the fields, with at most one gap and possibly with others behind them, need no lookup by name.
    """
    fields = kind.__struct_fields__
    count = sum(name in fields for name in names)
    if tuple(names[:count]) == fields[:count]:
        return [kind(*row) for row in rows] if count == len(names) else [kind(*row[:count]) for row in rows]
    head, gap = gap_in(kind, names[:count])
    if gap:
        return [kind(*row[:head], *gap, *row[head:count]) for row in rows]
    known = [(at, name) for at, name in enumerate(names) if name in fields]
    return [kind(**{name: row[at] for at, name in known}) for row in rows]


def gap_in(kind: type[S], names: Sequence[str]) -> tuple[int, tuple[Any, ...]]:
    """Return where columns in the order of the fields leave some fields out, and the defaults of these fields.

    The defaults are empty if there is no gap, more than one, or one with a field that has no constant default.
    """
    fields = kind.__struct_fields__
    head = next((at for at, (name, field) in enumerate(zip(names, fields, strict=False)) if name != field), len(names))
    if head == len(names) or names[head] not in fields:
        return head, ()
    end = fields.index(names[head])
    if end < head or tuple(names[head:]) != fields[end : end + len(names) - head]:
        return head, ()
    gap = tuple(info.default for info in msgspec.structs.fields(kind)[head:end])
    return head, () if msgspec.NODEFAULT in gap else gap
