"""/v1/operations: changes of many items by a filter, in the background."""

from noonday.api.context import RequestContext
from noonday.api.query import Query
from noonday.api.routing import Cursor, OperationIdInPath, PageSize, Route
from noonday.model.operation import OperationRequest
from noonday.model.operation_view import OperationPage, OperationPreview, OperationView


class OperationQuery(Query, frozen=True):
    cursor: Cursor | None = None
    limit: PageSize = 50


async def preview_operation(context: RequestContext, body: OperationRequest) -> OperationPreview:
    """Preview an operation: how many items it would change, and five of them. Changes nothing.

    Send `until` of the response with the operation, so that it changes nothing newer than what was shown. At most 1,000 items are
    counted; `isLeast` is true if there may be more.
    """
    return await context.intake.operations.preview(context.caller, body)


async def create_operation(context: RequestContext, body: OperationRequest) -> OperationView:
    """Start an operation that changes all items that match a filter.

    It runs in the background, newest items first, at most `ratePerSec` a second, and survives restarts. `sampleSize` items come
    first; a RETRY_DEAD_LETTERS then waits until their runs have ended. It stops by itself if more than `stopAbovePercent` of its
    latest results are failures. 409 if 5 operations of the tenant run.
    """
    return await context.intake.operations.create(context.caller, body, context.idem)


async def list_operations(context: RequestContext, query: OperationQuery) -> OperationPage:
    """List operations, newest first, in pages. They are kept for 30 days after their end."""
    return await context.intake.operations.list_operations(context.caller, cursor=query.cursor, limit=query.limit)


async def get_operation(context: RequestContext, operation_id: OperationIdInPath) -> OperationView:
    """Get an operation with its progress."""
    return await context.intake.operations.get(context.caller, operation_id)


async def stop_operation(context: RequestContext, operation_id: OperationIdInPath) -> OperationView:
    """Stop an operation. Up to 100 items that are being changed are completed; what is done stays done."""
    return await context.intake.operations.stop(context.caller, operation_id, context.idem)


ROUTES = (
    Route("POST", "/v1/operations/preview", preview_operation, scope="read", is_safe=True),
    Route("POST", "/v1/operations", create_operation, scope="write", status=201),
    Route("GET", "/v1/operations", list_operations, scope="read"),
    Route("GET", "/v1/operations/{operationId}", get_operation, scope="read"),
    Route("DELETE", "/v1/operations/{operationId}", stop_operation, scope="write"),
)
