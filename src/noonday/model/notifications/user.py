"""Users: the people whom notifications reach, and where."""

import msgspec

from noonday.model.notifications.sending import ProviderKind, ProviderLimits


class Profile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a user is reached. It is sealed in the store: the store sees ids and versions only."""

    zone: str | None = None
    """Time zone. None: UTC."""
    locale: str | None = None
    email: str | None = None
    phone: str | None = None
    """Phone number in E.164."""


class UserRow(msgspec.Struct, frozen=True):
    """A user as the store keeps it."""

    tenant: str
    user_id: str
    version: int
    """Grows with every change, so that a copy knows which of two is newer."""
    profile: bytes
    """Ciphertext of a Profile."""
    created_ms: int
    updated_ms: int


class AccountRow(msgspec.Struct, frozen=True, kw_only=True):
    """An account at a provider, as the store keeps it."""

    tenant: str
    name: str
    kind: ProviderKind
    order: int
    limits: ProviderLimits
    settings: dict[str, object]
    secrets: bytes
    """Ciphertext of the secrets, by name."""
    fault: str | None = None
    """Why the account is stopped: the provider refused its credentials or settings. None: it is in use."""
    fault_ms: int | None = None
    version: int
    created_ms: int
    updated_ms: int
