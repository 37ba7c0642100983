"""An end that a handler records itself, with its own writes."""

from abc import ABC, abstractmethod
from typing import Any

from noonday.model.message import Report


class Completions(ABC):
    """Settles a success in the transaction that a handler has open on a connection of its own."""

    @abstractmethod
    async def complete(self, connection: Any, report: Report, now_ms: int, *, schema: str | None = None) -> None:
        """Settle the success that `report` tells of, as the recorder would. It is committed when the caller commits.

        From here until then nobody else can settle, cancel or hand out the execution: they wait. Raises Conflict, having
        written nothing, if the execution is not with this dispatch and this worker any more, or if the connection is not
        inside a transaction; InvalidInput if it is no connection that can be used. What the connection itself raises is
        not translated: it is the caller's. `schema`: where the store is, if not where it is expected.
        """
