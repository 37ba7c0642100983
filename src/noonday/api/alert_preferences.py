"""/v1/alert-preferences: who is told of alerts, and how. Names are snake_case here."""

from typing import Annotated

import msgspec

from noonday.alerts.preferences import PreferenceSpec, PreferenceView, SentNotice
from noonday.api.call import Call
from noonday.api.routing import Route

PreferenceId = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9]([a-z0-9-]{0,58}[a-z0-9])?$")]


class PreferenceList(msgspec.Struct, frozen=True):
    preferences: list[PreferenceView]


async def list_preferences(call: Call) -> PreferenceList:
    """List who is told of what, by id."""
    return PreferenceList(await call.preferences.list_preferences(call.caller))


async def get_preference(call: Call, preference_id: PreferenceId) -> PreferenceView:
    """Show who is told of what under this id."""
    return await call.preferences.get(call.caller, preference_id)


async def put_preference(call: Call, preference_id: PreferenceId, body: PreferenceSpec) -> PreferenceView:
    """Say what somebody wants to be told of, and how; the id is yours to choose.

    What there was under this id is replaced whole. 409 if the channel is not set up at this server.
    """
    return await call.preferences.put(call.caller, preference_id, body, call.idem)


async def delete_preference(call: Call, preference_id: PreferenceId) -> None:
    """Tell nobody any more under this id, not even of what was gathered."""
    await call.preferences.delete(call.caller, preference_id, call.idem)


async def test_preference(call: Call, preference_id: PreferenceId) -> SentNotice:
    """Send a test notice now, on the way that all notices go.

    The answer says that it is on its way; whether it arrived, the job tells.
    """
    return await call.preferences.test(call.caller, preference_id, call.idem)


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
