"""/v1/alert-preferences: recipients and channels of alerts. Names are snake_case."""

from typing import Annotated

import msgspec

from noonday.api.context import RequestContext
from noonday.api.routing import Route
from noonday.model.preference import PreferenceSpec, PreferenceView, SentNotice

PreferenceId = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9]([a-z0-9-]{0,58}[a-z0-9])?$")]


class PreferenceList(msgspec.Struct, frozen=True):
    preferences: list[PreferenceView]


async def list_preferences(context: RequestContext) -> PreferenceList:
    """List alert preferences, ordered by id."""
    return PreferenceList(await context.preferences.list_preferences(context.caller))


async def get_preference(context: RequestContext, preference_id: PreferenceId) -> PreferenceView:
    """Get an alert preference."""
    return await context.preferences.get(context.caller, preference_id)


async def put_preference(context: RequestContext, preference_id: PreferenceId, body: PreferenceSpec) -> PreferenceView:
    """Create or replace an alert preference. The client chooses the id.

    Replaces all fields. 409 if the server has no such channel configured.
    """
    return await context.preferences.put(context.caller, preference_id, body, context.idem)


async def delete_preference(context: RequestContext, preference_id: PreferenceId) -> None:
    """Delete an alert preference and its unsent notices."""
    await context.preferences.delete(context.caller, preference_id, context.idem)


async def test_preference(context: RequestContext, preference_id: PreferenceId) -> SentNotice:
    """Send a test notice.

    The notice is sent like any other. The response names the job that sends it; that job has the result.
    """
    return await context.preferences.test(context.caller, preference_id, context.idem)


ROUTES = (
    Route("GET", "/v1/alert-preferences", list_preferences, scope="read"),
    Route("GET", "/v1/alert-preferences/{preference_id}", get_preference, scope="read"),
    Route("PUT", "/v1/alert-preferences/{preference_id}", put_preference, scope="write", needs_key=True),
    Route(
        "DELETE", "/v1/alert-preferences/{preference_id}", delete_preference, scope="write", status=204, needs_key=True
    ),
    Route(
        "POST", "/v1/alert-preferences/{preference_id}/test", test_preference, scope="write", status=202, needs_key=True
    ),
)
