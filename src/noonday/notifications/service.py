"""Notification service: checks requests and hands valid ones over to be sent."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import NamedTuple

from noonday.model.caller import Caller
from noonday.model.errors import Conflict, Flaw, InvalidInput, NoondayError, QuotaExceeded
from noonday.model.ids import TenantId
from noonday.model.notifications.notification import Notification
from noonday.model.notifications.sending import CHANNEL_OF, ChannelKind
from noonday.model.notifications.wire import AcceptedNotification, NotificationSpec
from noonday.notifications.accepting import Acceptor
from noonday.notifications.presenters import accepted_view
from noonday.notifications.profiles import Profiles
from noonday.notifications.translating import flaw_of_user_id, notification_of, refusal_of
from noonday.notifications.user_quota import UserQuota
from noonday.ports.clock import Clock
from noonday.ports.notifications import Users

CHECKED_A_TURN = 100
"""Number of notifications of a batch that are checked before the event loop serves other requests."""
USERS_A_READ = 1_000
"""Number of users whose zones are read at once."""

HasAccount = Callable[[TenantId, ChannelKind], Awaitable[bool]]
"""Returns whether a tenant has an account for a channel."""


class _Request(NamedTuple):
    """What all notifications of one request share."""

    tenant: TenantId
    channels: Collection[ChannelKind]
    zones: dict[str, str]
    """Zones of known users. Only those of requests with `local_time` are looked up."""
    now_ms: int


class NotificationService:
    """Accepts notifications. Nothing is read for it but the tenant's accounts and, for `local_time`, the user's zone."""

    def __init__(
        self,
        acceptor: Acceptor,
        users: Users,
        profiles: Profiles,
        has_account: HasAccount,
        clock: Clock,
        quota: UserQuota | None = None,
    ) -> None:
        self._acceptor = acceptor
        self._users = users
        self._profiles = profiles
        self._has_account = has_account
        self._clock = clock
        self._quota = quota or UserQuota()

    async def accept(self, caller: Caller, spec: NotificationSpec, key: str | None = None) -> AcceptedNotification:
        """Accept a notification. The same `key` and time give the same id, whatever else the request says.

        Raises InvalidInput with every flaw; Conflict if the tenant has an account for none of the channels; QuotaExceeded;
        Unavailable if it was not stored.
        """
        (result,) = await self._accept(caller, [spec], [key])
        if isinstance(result, NoondayError):
            raise result
        return result

    async def accept_many(
        self, caller: Caller, specs: Sequence[NotificationSpec | NoondayError], key: str | None = None
    ) -> list[AcceptedNotification | NoondayError]:
        """Accept many notifications. Returns the result or the error of each, in order.

        With a `key`, each has a key of its own, which follows from its position: repeat the request as it was.
        """
        keys = [None if key is None else f"{key}\0{index}" for index in range(len(specs))]
        return await self._accept(caller, specs, keys)

    async def _accept(
        self, caller: Caller, specs: Sequence[NotificationSpec | NoondayError], keys: Sequence[str | None]
    ) -> list[AcceptedNotification | NoondayError]:
        channels = [channel for channel in ChannelKind if await self._has_account(caller.tenant, channel)]
        zones = await self._zones(caller.tenant, specs)
        request = _Request(caller.tenant, channels, zones, self._clock.now_ms())
        drafts: list[Notification | NoondayError] = []
        for number, (spec, key) in enumerate(zip(specs, keys, strict=True), 1):
            drafts.append(self._draft(request, spec, key))
            if number % CHECKED_A_TURN == 0:
                await asyncio.sleep(0)
        return await self._store(request, drafts)

    def _draft(
        self, request: _Request, spec: NotificationSpec | NoondayError, key: str | None
    ) -> Notification | NoondayError:
        if isinstance(spec, NoondayError):
            return spec
        try:
            zone_name = _zone_for(spec, request.zones)
            notification = notification_of(spec, request.tenant, key, zone_name, request.now_ms)
            _require_account(spec, request.channels)
            self._quota.take(request.tenant, spec.user_id, request.now_ms)
        except (InvalidInput, Conflict, QuotaExceeded) as refused:
            return refused
        return notification

    async def _store(
        self, request: _Request, drafts: Sequence[Notification | NoondayError]
    ) -> list[AcceptedNotification | NoondayError]:
        valid = [draft for draft in drafts if isinstance(draft, Notification)]
        failures = await self._acceptor.accept(valid) if valid else []
        outcomes = iter(zip(valid, failures, strict=True))
        results: list[AcceptedNotification | NoondayError] = []
        for draft in drafts:
            if isinstance(draft, Notification):
                notification, failure = next(outcomes)
                results.append(failure or accepted_view(notification, request.now_ms))
            else:
                results.append(draft)
        lost = [each.user_id for each, failure in zip(valid, failures, strict=True) if failure is not None]
        self._quota.give_back(request.tenant, lost)
        return results

    async def _zones(self, tenant: TenantId, specs: Sequence[NotificationSpec | NoondayError]) -> dict[str, str]:
        """Return the zones of the users of requests with a local time. A user without a zone has UTC."""
        named = {
            spec.user_id: None
            for spec in specs
            if isinstance(spec, NotificationSpec) and spec.local_time is not None and not flaw_of_user_id(spec.user_id)
        }
        users, zones = list(named), dict[str, str]()
        for start in range(0, len(users), USERS_A_READ):
            keys = [(tenant, user_id) for user_id in users[start : start + USERS_A_READ]]
            rows = await self._users.find_many(keys)
            zones |= {row.user_id: self._profiles.open(row).zone or "UTC" for row in rows.values()}
        return zones


def _zone_for(spec: NotificationSpec, zones: dict[str, str]) -> str | None:
    """Return the zone that a local time is in. Raises InvalidInput if the user is not known."""
    if spec.local_time is None or flaw_of_user_id(spec.user_id):
        return None
    zone_name = zones.get(spec.user_id)
    if zone_name is None:
        detail = (
            f"needs the zone of user {spec.user_id!r}, who has no profile: PUT /v1/users/{{user_id}} with zone, "
            "or send scheduled_at"
        )
        raise refusal_of([Flaw("/local_time", detail, spec.local_time)])
    return zone_name


def _require_account(spec: NotificationSpec, channels: Collection[ChannelKind]) -> None:
    if not any(channel in channels for channel in spec.channels):
        wanted = " or ".join(spec.channels)
        kinds = ", ".join(kind for kind, channel in CHANNEL_OF.items() if channel in spec.channels)
        raise Conflict(
            f"no account for {wanted}: add one of kind {kinds} with `noonday provider put NAME --kind KIND`, "
            "or PUT /v1/providers/NAME",
            channels=list(spec.channels),
        )
