"""Sessions of a SQL database, as the stores use them that both SQL databases share.

A piece of work is a coroutine function of a session. It awaits nothing but its session, so that SQLite can run it to its end
inside the thread that owns the connection, while PostgreSQL awaits the server between its statements.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from noonday.drivers.sql.named_sql import NamedSql, load
from noonday.model.stored import read_stored

T = TypeVar("T")
Row = Any
"""A row whose columns are read by name: `row["due_ms"]`, or `Pause(**row)`."""


class SqlSession(ABC):
    """One connection, while a piece of work uses it. A list of values is one parameter."""

    raw: Any
    """The connection of the client library, for statements of one database only."""

    @abstractmethod
    async def fetch(self, query: str, *parameters: Any) -> Sequence[Row]:
        """Return all rows of a statement."""

    @abstractmethod
    async def row(self, query: str, *parameters: Any) -> Row | None:
        """Return the first row of a statement, or None."""

    @abstractmethod
    async def value(self, query: str, *parameters: Any) -> Any:
        """Return the first column of the first row of a statement, or None if there is no row."""

    async def execute(self, query: str, *parameters: Any) -> None:
        await self.fetch(query, *parameters)

    async def decode(self, kind: Any, query: str, *parameters: Any) -> Any:
        """Return the JSON value of a statement as a type, or None if there is no row."""
        text = await self.value(query, *parameters)
        return None if text is None else read_stored(text, kind)


Work = Callable[[SqlSession], Awaitable[T]]


class SqlSessions(ABC):
    """Runs work in sessions of one database."""

    dialect: str
    """The package whose folder `sql` has the statements of this database."""

    @abstractmethod
    async def write(self, work: Work[T]) -> T:
        """Run work in a transaction. Returns when it is committed. Work that raises is rolled back."""

    @abstractmethod
    async def read(self, work: Work[T]) -> T:
        """Run short work of the engine that only reads."""

    @abstractmethod
    async def query(self, work: Work[T]) -> T:
        """Run a user's query, which may take long. It delays no work of the engine."""

    def statements(self, port: str) -> NamedSql:
        return load(self.dialect, port)

    async def fetch(self, query: str, *parameters: Any) -> Sequence[Row]:
        return await self.read(lambda session: session.fetch(query, *parameters))

    async def row(self, query: str, *parameters: Any) -> Row | None:
        return await self.read(lambda session: session.row(query, *parameters))

    async def value(self, query: str, *parameters: Any) -> Any:
        return await self.read(lambda session: session.value(query, *parameters))

    async def decode(self, kind: Any, query: str, *parameters: Any) -> Any:
        return await self.read(lambda session: session.decode(kind, query, *parameters))


def can_be_stored(*texts: str | None) -> bool:
    """Return whether the texts can be in every database. PostgreSQL has no text with a NUL, and refuses it as a parameter."""
    return not any(text and "\0" in text for text in texts)
