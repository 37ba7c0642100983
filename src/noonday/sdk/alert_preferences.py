"""What can be asked of a server about who is told of alerts."""

from collections.abc import Sequence
from typing import Any

import msgspec

from noonday.alerts.preferences import PreferenceSpec, PreferenceView, SentNotice
from noonday.sdk.fields import filled
from noonday.sdk.transport import Transport, path_of


class AlertPreferences:
    """`client.alert_preferences`. Errors and retries are those of the client; every change carries an Idempotency-Key."""

    def __init__(self, http: Transport) -> None:
        self._http = http

    async def list(self) -> Sequence[PreferenceView]:
        """Who is told of what, by id."""
        return (await self._http.get(_Preferences, "/v1/alert-preferences")).preferences

    async def get(self, preference_id: str) -> PreferenceView:
        """Raises NotFound."""
        return await self._http.get(PreferenceView, path_of("alert-preferences", preference_id))

    async def put(
        self,
        preference_id: str,
        spec: PreferenceSpec | None = None,
        /,
        *,
        idempotency_key: str | None = None,
        **fields: Any,
    ) -> PreferenceView:
        """Say what somebody wants to be told of: `put("ops", channel={"type": "EMAIL", "address": "ops@example.com"})`.

        What there was under this id is replaced whole. Raises InvalidInput with every flaw, and Conflict if the channel is
        not set up at the server.
        """
        said, path = filled(PreferenceSpec, spec, fields), path_of("alert-preferences", preference_id)
        return await self._http.change(PreferenceView, "PUT", path, said, key=idempotency_key)

    async def delete(self, preference_id: str, *, idempotency_key: str | None = None) -> None:
        """Nobody is told by it any more. Raises NotFound."""
        path = path_of("alert-preferences", preference_id)
        await self._http.change(type(None), "DELETE", path, key=idempotency_key)

    async def test(self, preference_id: str, *, idempotency_key: str | None = None) -> SentNotice:
        """Send a test notice now; the job in the answer tells what became of it. Raises NotFound."""
        path = path_of("alert-preferences", preference_id, "test")
        return await self._http.change(SentNotice, "POST", path, key=idempotency_key)


class _Preferences(msgspec.Struct):
    preferences: tuple[PreferenceView, ...]
