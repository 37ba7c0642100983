"""/v1/audit: changes and who made them."""

from typing import Annotated

import msgspec

from noonday.api.context import RequestContext
from noonday.api.query import Query
from noonday.api.routing import PageSize, Route
from noonday.model.view import AuditPage

AuditCursor = Annotated[str, msgspec.Meta(pattern="^[0-9]{1,18}$", description="`next` of the previous page")]


class AuditQuery(Query, frozen=True):
    target: str | None = None
    subject: str | None = None
    cursor: AuditCursor | None = None
    limit: PageSize = 50


async def list_audit(context: RequestContext, query: AuditQuery) -> AuditPage:
    """List changes with subject and target, newest first, in pages."""
    return await context.intake.audit.list_entries(
        context.caller, target=query.target, subject=query.subject, cursor=query.cursor, limit=query.limit
    )


ROUTES = (Route("GET", "/v1/audit", list_audit, scope="admin"),)
