"""Make structs of rows by the names of their columns."""

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

S = TypeVar("S", bound=msgspec.Struct)


def structs_of(kind: type[S], names: Sequence[str], rows: Sequence[Any]) -> list[S]:
    """Make a struct of each row. Columns that the struct lacks are left out; fields without a column keep their default.

    Columns in the order of the fields, possibly with others behind them, need no lookup by name.
    """
    fields = kind.__struct_fields__
    count = sum(name in fields for name in names)
    if tuple(names[:count]) == fields[:count]:
        return [kind(*row) for row in rows] if count == len(names) else [kind(*row[:count]) for row in rows]
    known = [(at, name) for at, name in enumerate(names) if name in fields]
    return [kind(**{name: row[at] for at, name in known}) for row in rows]
