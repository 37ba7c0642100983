"""The handler of all channels: check a dispatch, take its send key, call a provider, and say what follows.

It is entered at the instant of the notification, by a worker that holds the claim of the dispatch. It never raises: what goes
wrong is an outcome. A call whose end is not known is never repeated, unless the notification allows it.
"""

import asyncio
from collections.abc import Sequence

import msgspec
import structlog

from noonday.model.errors import BadKey, Unavailable
from noonday.model.handler import Handler, Mode
from noonday.model.notifications.notification import (
    EventDetail,
    EventKind,
    NotificationDispatch,
    OnUnknown,
)
from noonday.model.notifications.results import DispatchEvent, KeySettlement, NextDispatch, SendResult
from noonday.model.notifications.send_keys import KeyTake
from noonday.model.notifications.sending import (
    ChannelKind,
    OutcomeKind,
    ProviderAccount,
    ProviderMessage,
    ProviderOutcome,
)
from noonday.model.notifications.user import Profile
from noonday.notifications.accounts import AccountCache
from noonday.notifications.call_slot import CALL_SEC, CallSlot
from noonday.notifications.dispatching import HANDLER, POOLS, SEND_TIMEOUT_SEC
from noonday.notifications.outcomes import has_ended
from noonday.notifications.profiles import Profiles
from noonday.notifications.send_results import DispatchTry, back_off_ms, ended, expired, later, reason_of, result_of
from noonday.ports.clock import Clock
from noonday.ports.notifications import NotificationEvents, SendKeys
from noonday.ports.providers import Providers
from noonday.ports.throttles import Throttles
from noonday.worker.context import Context

log = structlog.get_logger("noonday.notifications")

CALLS_MS = 25_000
"""Time in a dispatch after which no other provider is called: the claim must last until the report."""
FRESH_MS = 240_000
"""A dispatch that was stamped longer ago may have run before: it is looked up."""
BUSY_MS = 2_000
"""Wait for the outcome of another notification with the same send key."""
STORE_AWAY_MS = 5_000
"""Wait after a store could not be asked."""
REASON_CHARS = 300


class NotificationSender:
    """Sends notifications over all channels. One object serves all dispatches of a process."""

    def __init__(
        self,
        *,
        profiles: Profiles,
        accounts: AccountCache,
        send_keys: SendKeys,
        events: NotificationEvents,
        providers: Providers,
        throttles: Throttles,
        clock: Clock,
        always_looks_up: bool,
    ) -> None:
        """`always_looks_up`: whether each dispatch is looked up in the events, because that costs little. If not, only those are
        that may have run before."""
        self._always_looks_up = always_looks_up
        self._profiles = profiles
        self._accounts = accounts
        self._send_keys = send_keys
        self._events = events
        self._providers = providers
        self._throttles = throttles
        self._clock = clock
        self._began_ms = clock.now_ms()
        """Start of this process: what was dispatched before may have run in another one."""

    def handlers(self) -> dict[tuple[str, str], Handler]:
        """Return the handler of each channel's pool."""
        return {
            (pool, HANDLER): Handler(
                HANDLER,
                pool,
                self.send,
                Mode.ASYNC,
                decode=_decode,
                encode=msgspec.json.encode,
                timeout_sec=SEND_TIMEOUT_SEC,
            )
            for pool in POOLS.values()
        }

    async def send(self, ctx: Context, dispatch: NotificationDispatch) -> SendResult:
        """Send one dispatch. Returns what came of it."""
        now_ms = self._clock.now_ms()
        attempt = DispatchTry(dispatch, ctx._dispatch.number, now_ms, excluded=list(dispatch.excluded))
        try:
            if self._may_have_run(ctx, now_ms) and await self._has_ended(attempt):
                return SendResult()
            taken = await self._take_key(attempt, now_ms)
            if taken is not KeyTake.TAKEN:
                return await self._without_key(attempt, taken, now_ms)
            if now_ms >= attempt.notification.expires_ms:
                return expired(attempt, now_ms)
            address = await self._address(attempt)
            if address is None:
                return self._next_channel(attempt, now_ms, _no_address(dispatch.channel))
            return await self._send_to(attempt, address)
        except Unavailable as error:
            # Nothing has been called: a failure after a call is an outcome of that call.
            return later(attempt, now_ms + STORE_AWAY_MS, error.detail, now_ms, tries=dispatch.tries)
        except (BadKey, msgspec.MsgspecError) as error:
            return ended(
                attempt, EventKind.FAILED, now_ms, reason=f"stored data cannot be read: {error}"[:REASON_CHARS]
            )

    def _may_have_run(self, ctx: Context, now_ms: int) -> bool:
        fired_ms = ctx._dispatch.fired_ms
        return (
            self._always_looks_up or fired_ms < self._began_ms or now_ms - fired_ms > FRESH_MS or ctx._token.taken_over
        )

    async def _has_ended(self, attempt: DispatchTry) -> bool:
        notification = attempt.notification
        events = await self._events.events_of([(notification.tenant, notification.id)])
        return has_ended(events.get(notification.id, ()), attempt.number)

    async def _address(self, attempt: DispatchTry) -> str | None:
        profile = await self._profiles.find(attempt.notification.tenant, attempt.notification.user_id)
        return _address_in(profile, attempt.dispatch.channel) if profile is not None else None

    async def _take_key(self, attempt: DispatchTry, now_ms: int) -> KeyTake:
        notification = attempt.notification
        return await self._send_keys.take(
            notification.tenant, notification.send_key, notification.id, attempt.number, now_ms
        )

    async def _without_key(self, attempt: DispatchTry, taken: KeyTake, now_ms: int) -> SendResult:
        """Decide about a dispatch that may call nobody."""
        if taken is KeyTake.BUSY:
            return await self._wait_for_key(attempt, now_ms)
        if taken is KeyTake.SENT:
            return ended(attempt, EventKind.DUPLICATE, now_ms, reason="another notification with its key was sent")
        if taken is KeyTake.SENT_BEFORE:
            return SendResult()
        outcome = ProviderOutcome(OutcomeKind.UNKNOWN, detail="its sender ended before it reported the outcome")
        address = await self._address(attempt)
        if address is None:
            return self._left_unknown(attempt, now_ms, outcome.detail, None)
        notification = attempt.notification
        accounts = await self._accounts.usable(notification.tenant, attempt.dispatch.channel, attempt.excluded)
        return await self._unknown(attempt, accounts, address, outcome, None)

    async def _send_to(self, attempt: DispatchTry, address: str) -> SendResult:
        notification = attempt.notification
        accounts = await self._accounts.usable(notification.tenant, attempt.dispatch.channel, attempt.excluded)
        if not accounts:
            return await self._without_account(attempt, self._clock.now_ms())
        return await self._call_in_order(attempt, accounts, address)

    async def _call_in_order(
        self, attempt: DispatchTry, accounts: Sequence[ProviderAccount], address: str
    ) -> SendResult:
        """Call the providers of a channel until one accepts, or an outcome forbids to call another."""
        reason, wait_ms = "no provider could be called", 0
        may_take_later = False
        for account in accounts:
            now_ms = self._clock.now_ms()
            if now_ms >= attempt.notification.expires_ms:
                return expired(attempt, now_ms)
            if now_ms - attempt.began_ms > CALLS_MS:
                may_take_later = True
                break
            outcome = await self._call(account, attempt, address)
            now_ms = self._clock.now_ms()
            reason = reason_of(account, outcome)
            if outcome.kind is OutcomeKind.ACCEPTED:
                return self._sent(attempt, account, outcome, now_ms)
            if outcome.kind is OutcomeKind.UNKNOWN:
                return await self._unknown(attempt, accounts, address, outcome, account)
            if outcome.kind is OutcomeKind.RECIPIENT_REJECTED:
                return self._next_channel(attempt, now_ms, reason)
            if outcome.kind is OutcomeKind.REQUEST_REJECTED:
                attempt.excluded.append(account.name)
            else:
                may_take_later = True
                wait_ms = max(wait_ms, outcome.retry_after_ms or 0)
            if outcome.kind is OutcomeKind.CONFIGURATION_FAULT:
                await self._accounts.stop(account, outcome.detail or "the provider refuses the account", now_ms)
        now_ms = self._clock.now_ms()
        if not may_take_later:
            return self._next_channel(attempt, now_ms, reason)
        at_ms = now_ms + max(wait_ms, back_off_ms(attempt))
        return later(attempt, at_ms, reason, now_ms, tries=attempt.dispatch.tries + 1)

    async def _call(self, account: ProviderAccount, attempt: DispatchTry, address: str) -> ProviderOutcome:
        """Call a provider within the limits of the account."""
        provider = self._providers.get(account.kind)
        if provider is None:
            return ProviderOutcome(OutcomeKind.CONFIGURATION_FAULT, detail=f"{account.kind} is not supported")
        call = CallSlot(self._throttles, self._clock, account, attempt.notification.id)
        wait_ms = await call.enter()
        if wait_ms:
            return ProviderOutcome(OutcomeKind.RETRY, detail="the account's limits are reached", retry_after_ms=wait_ms)
        try:
            async with asyncio.timeout(CALL_SEC):
                return await provider.send(account, _message(attempt, account, address))
        except TimeoutError:
            return ProviderOutcome(OutcomeKind.UNKNOWN, detail=f"the provider did not answer within {CALL_SEC:g} s")
        except asyncio.CancelledError:
            # The worker stops. What has left cannot be called back: the end is reported, not the interruption.
            return ProviderOutcome(OutcomeKind.UNKNOWN, detail="the call was interrupted")
        except Exception as error:
            log.exception("provider failed", provider=account.kind, error=repr(error)[:300])
            return ProviderOutcome(OutcomeKind.UNKNOWN, detail=f"the call failed: {type(error).__name__}")
        finally:
            await call.leave()

    async def _unknown(
        self,
        attempt: DispatchTry,
        accounts: Sequence[ProviderAccount],
        address: str,
        outcome: ProviderOutcome,
        account: ProviderAccount | None,
    ) -> SendResult:
        """Decide about a call whose end is not known. `account`: the one that was called, if that is known."""
        policy = attempt.notification.on_unknown
        if policy is OnUnknown.LOOK_UP:
            for each in [account] if account is not None else accounts:
                found = await self._find(each, attempt, address)
                if found is not None and found.kind is OutcomeKind.ACCEPTED:
                    return self._sent(attempt, each, found, self._clock.now_ms())
        now_ms = self._clock.now_ms()
        reason = outcome.detail if account is None else reason_of(account, outcome)
        if policy is OnUnknown.SEND_AGAIN:
            at_ms = now_ms + back_off_ms(attempt)
            return later(attempt, at_ms, reason or "", now_ms, tries=attempt.dispatch.tries + 1)
        return self._left_unknown(attempt, now_ms, reason, account)

    def _left_unknown(
        self, attempt: DispatchTry, now_ms: int, reason: str | None, account: ProviderAccount | None
    ) -> SendResult:
        """End the notification with an unknown outcome: nobody else is called."""
        provider = account.name if account is not None else None
        detail = EventDetail(channel=attempt.dispatch.channel, provider=provider, reason=reason)
        attempt.events.append(DispatchEvent(EventKind.UNKNOWN, now_ms, detail))
        return result_of(attempt, now_ms, key=KeySettlement.SENT)

    async def _find(self, account: ProviderAccount, attempt: DispatchTry, address: str) -> ProviderOutcome | None:
        provider = self._providers.get(account.kind)
        try:
            if provider is None:
                return None
            async with asyncio.timeout(CALL_SEC):
                return await provider.find(account, _message(attempt, account, address), attempt.notification.send_ms)
        except (TimeoutError, asyncio.CancelledError):
            return None  # the outcome stays unknown: an interruption must not lead to another call

    def _sent(
        self, attempt: DispatchTry, account: ProviderAccount, outcome: ProviderOutcome, now_ms: int
    ) -> SendResult:
        detail = EventDetail(channel=attempt.dispatch.channel, provider=account.name, provider_id=outcome.provider_id)
        attempt.events.append(DispatchEvent(EventKind.SENT, now_ms, detail, account.name))
        return result_of(attempt, now_ms, key=KeySettlement.SENT)

    def _next_channel(self, attempt: DispatchTry, now_ms: int, reason: str) -> SendResult:
        """Go on with the next channel, or end the notification if there is none."""
        index = attempt.dispatch.channel_index + 1
        if index >= len(attempt.notification.channels):
            detail = EventDetail(channel=attempt.dispatch.channel, reason=reason)
            attempt.events.append(DispatchEvent(EventKind.FAILED, now_ms, detail))
            return result_of(attempt, now_ms, key=KeySettlement.RELEASE)
        detail = EventDetail(channel=attempt.dispatch.channel, reason=reason, until_ms=now_ms)
        attempt.events.append(DispatchEvent(EventKind.FELL_BACK, now_ms, detail))
        following = NotificationDispatch(notification=attempt.notification, channel_index=index, failure=reason)
        return result_of(attempt, now_ms, key=KeySettlement.RELEASE, following=NextDispatch(now_ms, following))

    async def _without_account(self, attempt: DispatchTry, now_ms: int) -> SendResult:
        """Wait for an account that is stopped, go on with the next channel if every account refused it or there is none."""
        channel = attempt.dispatch.channel
        stopped = await self._accounts.stopped(attempt.notification.tenant, channel, attempt.excluded)
        if not stopped:
            reason = attempt.dispatch.failure or f"there is no provider account for {channel}"
            return self._next_channel(attempt, now_ms, reason)
        reason = f"account {stopped[0].name} is stopped: {stopped[0].fault}"
        at_ms = now_ms + back_off_ms(attempt)
        return later(attempt, at_ms, reason, now_ms, tries=attempt.dispatch.tries + 1)

    async def _wait_for_key(self, attempt: DispatchTry, now_ms: int) -> SendResult:
        """Wait for the outcome of the notification that holds the key. If it has one that was not noted, note it."""
        notification = attempt.notification
        holder = await self._send_keys.holder(notification.tenant, notification.send_key)
        if holder is not None:
            events = (await self._events.events_of([(notification.tenant, holder)])).get(holder, [])
            if any(event.kind in (EventKind.SENT, EventKind.UNKNOWN) for event in events):
                until_ms = now_ms + notification.key_window_ms
                await self._send_keys.sent(notification.tenant, notification.send_key, holder, until_ms)
            elif events and has_ended(events, max(event.number for event in events)):
                last = max(event.number for event in events)
                await self._send_keys.release(notification.tenant, notification.send_key, holder, last)
        reason = "another notification with its key is being sent"
        return later(attempt, now_ms + BUSY_MS, reason, now_ms, tries=attempt.dispatch.tries)


def _decode(text: bytes) -> NotificationDispatch:
    return msgspec.json.decode(text, type=NotificationDispatch)


def _message(attempt: DispatchTry, account: ProviderAccount, address: str) -> ProviderMessage:
    notification = attempt.notification
    return ProviderMessage(
        tenant=notification.tenant,
        notification_id=notification.id,
        number=attempt.number,
        channel=attempt.dispatch.channel,
        address=address,
        content=notification.content,
        expires_ms=notification.expires_ms,
    )


def _address_in(profile: Profile, channel: ChannelKind) -> str | None:
    if channel is ChannelKind.EMAIL:
        return profile.email
    if channel is ChannelKind.SMS:
        return profile.phone
    return None


def _no_address(channel: ChannelKind) -> str:
    return f"the user has no address for {channel}"
