"""Client of /v1/users: where the users of an application are reached."""

from typing import Any

from noonday.model.notifications.wire import UserSpec, UserView
from noonday.sdk.fields import filled
from noonday.sdk.transport import ClientPart, path_of


class UsersClient(ClientPart):
    """`client.users`. Errors and retries are as in `Client`; every change has an Idempotency-Key."""

    async def put(
        self, user_id: str, spec: UserSpec | None = None, /, *, idempotency_key: str | None = None, **fields: Any
    ) -> UserView:
        """Create or replace a profile: `put("u-17", email="a@example.com", zone="Europe/Berlin")`.

        Replaces all fields. Raises InvalidInput with every flaw.
        """
        body = filled(UserSpec, spec, fields)
        return await self._http.change(UserView, "PUT", path_of("users", user_id), body, key=idempotency_key)

    async def get(self, user_id: str) -> UserView:
        """Return a profile. Raises NotFound."""
        return await self._http.get(UserView, path_of("users", user_id))

    async def delete(self, user_id: str, *, idempotency_key: str | None = None) -> None:
        """Delete a profile. Raises NotFound."""
        await self._http.change(type(None), "DELETE", path_of("users", user_id), key=idempotency_key)
