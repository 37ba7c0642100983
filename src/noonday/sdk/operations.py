"""Client of /v1/operations: changes of many items by a filter."""

from typing import Any

from noonday.model.operation import OperationFilter, OperationKind, OperationRequest
from noonday.model.operation_view import OperationPage, OperationPreview, OperationView
from noonday.sdk.fields import filled
from noonday.sdk.transport import ClientPart, path_of


class OperationsClient(ClientPart):
    """`client.operations`. An operation runs on the server, in the background.

    Errors and retries are as in `Client`; every change has an Idempotency-Key.
    """

    async def preview(
        self, kind: OperationKind | str, where: OperationFilter | None = None, /, **fields: Any
    ) -> OperationPreview:
        """Return how many items an operation would change, and five of them: `preview("PAUSE_JOBS", tag="etl")`.

        `fields` are those of OperationFilter and of OperationRequest.
        """
        request = _request(kind, where, fields)
        return await self._http.ask(OperationPreview, "POST", "/v1/operations/preview", request)

    async def start(
        self,
        kind: OperationKind | str,
        where: OperationFilter | None = None,
        /,
        *,
        idempotency_key: str | None = None,
        **fields: Any,
    ) -> OperationView:
        """Start an operation: `start("RETRY_DEAD_LETTERS", pool="mail", before=preview.until)`.

        Without conditions, it changes all items. `before` is the `until` of the request: only older items are changed.
        """
        request = _request(kind, where, fields)
        return await self._http.change(OperationView, "POST", "/v1/operations", request, key=idempotency_key)

    async def get(self, operation_id: str) -> OperationView:
        return await self._http.get(OperationView, path_of("operations", operation_id))

    async def list(self, *, cursor: str | None = None, limit: int | None = None) -> OperationPage:
        """Return a page of operations, newest first. `next` is the next `cursor`."""
        return await self._http.get(OperationPage, "/v1/operations", {"cursor": cursor, "limit": limit})

    async def stop(self, operation_id: str, *, idempotency_key: str | None = None) -> OperationView:
        """Stop an operation. What is done stays done."""
        return await self._http.change(
            OperationView, "DELETE", path_of("operations", operation_id), key=idempotency_key
        )


_OF_REQUEST = {
    "before": "until",
    "sample_size": "sample_size",
    "rate_per_sec": "rate_per_sec",
    "stop_above_percent": "stop_above_percent",
}
"""Fields of the request, by the names of their arguments. `until` is a condition of the filter."""


def _request(kind: OperationKind | str, where: OperationFilter | None, fields: dict[str, Any]) -> OperationRequest:
    own = {_OF_REQUEST[name]: fields.pop(name) for name in list(fields) if name in _OF_REQUEST}
    return filled(OperationRequest, None, {"kind": kind, "filter": filled(OperationFilter, where, fields), **own})
