"""/v1/audit: who did what."""

from typing import Annotated

import msgspec

from noonday.api.call import Call
from noonday.api.query import Query
from noonday.api.routing import PageSize, Route
from noonday.model.view import AuditPage

AuditCursor = Annotated[str, msgspec.Meta(pattern="^[0-9]{1,18}$", description="`next` of the page before")]


class AuditFilter(Query, frozen=True):
    target: str | None = None
    subject: str | None = None
    cursor: AuditCursor | None = None
    limit: PageSize = 50


async def list_audit(call: Call, query: AuditFilter) -> AuditPage:
    """List changes, newest first, in pages: the subject of the token that made each, and to what."""
    return await call.reading.audit(
        call.caller, target=query.target, subject=query.subject, cursor=query.cursor, limit=query.limit
    )


ROUTES = (Route("GET", "/v1/audit", list_audit, scope="admin"),)
