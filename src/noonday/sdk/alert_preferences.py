"""Client of /v1/alert-preferences: recipients and channels of alerts."""

from collections.abc import Sequence
from typing import Any

import msgspec

from noonday.model.preference import PreferenceSpec, PreferenceView, SentNotice
from noonday.sdk.fields import filled
from noonday.sdk.transport import ClientPart, path_of


class AlertPreferencesClient(ClientPart):
    """`client.alert_preferences`. Errors and retries are as in `Client`; every change has an Idempotency-Key."""

    async def list(self) -> Sequence[PreferenceView]:
        """Return all preferences, ordered by id."""
        return (await self._http.get(_Preferences, "/v1/alert-preferences")).preferences

    async def get(self, preference_id: str) -> PreferenceView:
        """Return a preference. Raises NotFound."""
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
        """Create or replace a preference: `put("ops", channel={"type": "EMAIL", "address": "ops@example.com"})`.

        Replaces all fields. Raises InvalidInput with every flaw, and Conflict if the server has no such channel configured.
        """
        preference, path = filled(PreferenceSpec, spec, fields), path_of("alert-preferences", preference_id)
        return await self._http.change(PreferenceView, "PUT", path, preference, key=idempotency_key)

    async def delete(self, preference_id: str, *, idempotency_key: str | None = None) -> None:
        """Delete a preference. Raises NotFound."""
        path = path_of("alert-preferences", preference_id)
        await self._http.change(type(None), "DELETE", path, key=idempotency_key)

    async def test(self, preference_id: str, *, idempotency_key: str | None = None) -> SentNotice:
        """Send a test notice. The returned job has the result. Raises NotFound."""
        path = path_of("alert-preferences", preference_id, "test")
        return await self._http.change(SentNotice, "POST", path, key=idempotency_key)


class _Preferences(msgspec.Struct):
    preferences: tuple[PreferenceView, ...]
