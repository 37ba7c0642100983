"""Completions that handlers commit themselves, together with their own writes."""

from abc import ABC, abstractmethod
from typing import Any

from noonday.model.message import Report


class Completions(ABC):
    """Settles a success in the transaction of a handler, on the handler's own connection."""

    @abstractmethod
    async def complete(self, connection: Any, report: Report, now_ms: int, *, schema: str | None = None) -> None:
        """Settle the success in `report` as the recorder would. The caller's commit commits it.

        Until then, others that settle, cancel or dispatch the execution wait. Raises Conflict, without having written
        anything, if the execution no longer has this dispatch and this worker, or if the connection is not inside a
        transaction. Raises InvalidInput if the connection is of a type that cannot be used. Exceptions of the connection are
        not translated, because it is the caller's. `schema` is the schema of the store, if it is not the default one.
        """
