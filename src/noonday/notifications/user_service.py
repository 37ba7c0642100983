"""User service: profiles of the people whom notifications reach."""

import re
from collections.abc import Iterator

from noonday.intake.idempotency import Idempotency
from noonday.intake.receipts import Receipts
from noonday.mail.addresses import flaw_of_address
from noonday.model.caller import Caller
from noonday.model.errors import Flaw, InvalidInput, NotFound
from noonday.model.ids import TenantId
from noonday.model.notifications.user import Profile, UserRow
from noonday.model.notifications.wire import UserSpec, UserView
from noonday.model.zones import zone
from noonday.notifications.presenters import user_view
from noonday.notifications.profiles import Profiles
from noonday.notifications.translating import refusal_of
from noonday.ports.clock import Clock
from noonday.ports.notifications import Users

PHONE = r"^\+[1-9][0-9]{6,14}$"
LOCALE = r"^[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8}){0,4}$"
_PHONE, _LOCALE = re.compile(PHONE), re.compile(LOCALE)
_SHOWN = 300


class UserService:
    """Commands and queries of users. Profiles are encrypted in the store."""

    def __init__(self, users: Users, profiles: Profiles, receipts: Receipts, clock: Clock) -> None:
        self._users = users
        self._profiles = profiles
        self._receipts = receipts
        self._clock = clock

    async def put(self, caller: Caller, user_id: str, spec: UserSpec, idem: Idempotency | None = None) -> UserView:
        """Create a profile, or replace it. Raises InvalidInput with every flaw."""
        async with self._receipts.once(caller, idem):
            if flaws := list(_flaws_of(spec)):
                raise refusal_of(flaws)
            before, now_ms = await self._find(caller.tenant, user_id), self._clock.now_ms()
            profile = Profile(zone=spec.zone, locale=spec.locale, email=spec.email, phone=spec.phone)
            view = user_view(user_id, profile, before.created_ms if before else now_ms, now_ms)
            receipt = self._receipts.of(caller, idem, now_ms, view) if idem else None
            sealed = self._profiles.seal(profile, caller.tenant, user_id)
            await self._users.put(caller.tenant, user_id, sealed, now_ms, receipt)
            return view

    async def get(self, caller: Caller, user_id: str) -> UserView:
        """Return a profile. Raises NotFound."""
        row = await self._find(caller.tenant, user_id)
        if row is None:
            raise _missing(user_id)
        return user_view(user_id, self._profiles.open(row), row.created_ms, row.updated_ms)

    async def delete(self, caller: Caller, user_id: str, idem: Idempotency | None = None) -> None:
        """Delete a profile. Notifications to the user that are not sent yet end FAILED. Raises NotFound."""
        async with self._receipts.once(caller, idem):
            if not await self._users.delete(caller.tenant, user_id):
                raise _missing(user_id)
            await self._receipts.keep(caller, idem, None)

    async def _find(self, tenant: TenantId, user_id: str) -> UserRow | None:
        return (await self._users.find_many([(tenant, user_id)])).get((tenant, user_id))


def _flaws_of(spec: UserSpec) -> Iterator[Flaw]:
    if spec.zone is not None:
        try:
            zone(spec.zone)
        except InvalidInput as bad:
            (flaw,) = bad.flaws
            detail = "is not a time zone; write UTC or an IANA name such as Europe/Berlin"
            yield Flaw("/zone", detail, flaw.value, flaw.allowed, flaw.nearest)
    if spec.locale is not None and not _LOCALE.fullmatch(spec.locale):
        yield Flaw("/locale", "must be a language tag such as de or pt-BR", spec.locale[:_SHOWN])
    if spec.email is not None and (problem := flaw_of_address(spec.email)) is not None:
        yield Flaw("/email", problem, spec.email[:_SHOWN])
    if spec.phone is not None and not _PHONE.fullmatch(spec.phone):
        detail = "must be a phone number in E.164: +, the country code and the number, such as +4930123456"
        yield Flaw("/phone", detail, spec.phone[:_SHOWN])


def _missing(user_id: str) -> NotFound:
    return NotFound(f"there is no user {user_id!r}", user_id=user_id)
