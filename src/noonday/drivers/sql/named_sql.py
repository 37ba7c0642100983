"""Load named SQL statements from `.sql` files: a line `-- name: NAME`, a sentence of intent, the statement."""

import re
from functools import cache
from importlib.resources import files

_HEADING = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


class NamedSql:
    """The named statements of one file, as attributes."""

    def __init__(self, statements: dict[str, str]) -> None:
        self.statements = statements

    def __getattr__(self, name: str) -> str:
        try:
            return self.statements[name]
        except KeyError:
            raise AttributeError(name) from None


@cache
def load(package: str, port: str) -> NamedSql:
    """Return the statements of one file in the folder `sql` of a package."""
    text = files(package).joinpath("sql", f"{port}.sql").read_text("utf-8")
    _, *parts = _HEADING.split(text)
    return NamedSql({name: body.strip().rstrip(";") for name, body in zip(parts[::2], parts[1::2], strict=True)})
