"""Profiles of users, as senders read them."""

import msgspec

from noonday.crypto.envelope import context_of
from noonday.crypto.keyring import Keyring
from noonday.model.notifications.user import Profile, UserRow
from noonday.model.stored import StoredDecoder
from noonday.ports.notifications import Users

_read_profile = StoredDecoder(Profile).decode


class Profiles:
    """Opens the sealed profiles of the store."""

    def __init__(self, users: Users, keyring: Keyring) -> None:
        self._users = users
        self._keyring = keyring

    async def find(self, tenant: str, user_id: str) -> Profile | None:
        """Return the profile of a user. None if there is none."""
        row = (await self._users.find_many([(tenant, user_id)])).get((tenant, user_id))
        return None if row is None else self.open(row)

    def open(self, row: UserRow) -> Profile:
        """Return the profile of a row, also one that a newer release wrote. Raises BadKey."""
        return _read_profile(self._keyring.open(row.profile, profile_context(row.tenant, row.user_id)))

    def seal(self, profile: Profile, tenant: str, user_id: str) -> bytes:
        """Return a profile as the store keeps it."""
        return self._keyring.seal(msgspec.json.encode(profile), profile_context(tenant, user_id))


def profile_context(tenant: str, user_id: str) -> bytes:
    """Return the context that binds a sealed profile to its user."""
    return context_of(tenant, f"user/{user_id}")
