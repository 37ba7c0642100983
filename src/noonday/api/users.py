"""/v1/users: where the users of an application are reached. Names are snake_case."""

from noonday.api.context import RequestContext
from noonday.api.notifications import UserIdInPath
from noonday.api.routing import Route
from noonday.model.notifications.wire import UserSpec, UserView


async def put_user(context: RequestContext, user_id: UserIdInPath, body: UserSpec) -> UserView:
    """Create the profile of a user, or replace it.

    Replaces all fields: omitted ones are removed. Notifications that are not sent yet use the new profile.
    """
    return await context.notifications.users.put(context.caller, user_id, body, context.idem)


async def get_user(context: RequestContext, user_id: UserIdInPath) -> UserView:
    """Get the profile of a user."""
    return await context.notifications.users.get(context.caller, user_id)


async def delete_user(context: RequestContext, user_id: UserIdInPath) -> None:
    """Delete the profile of a user. Notifications that are not sent yet end FAILED."""
    await context.notifications.users.delete(context.caller, user_id, context.idem)


_ONE = "/v1/users/{user_id}"
ROUTES = (
    Route("PUT", _ONE, put_user, scope="write"),
    Route("GET", _ONE, get_user, scope="read"),
    Route("DELETE", _ONE, delete_user, scope="write", status=204),
)
