"""Record what senders report: the dispatch that follows, the events, and what becomes of the send key."""

from collections.abc import Sequence

import msgspec
import structlog

from noonday.crypto.envelope import context_of
from noonday.crypto.keyring import Keyring
from noonday.model.errors import BadKey
from noonday.model.execution import Outcome
from noonday.model.ids import TenantId
from noonday.model.message import LogBatch, Report
from noonday.model.notifications.notification import EventDetail, EventKind, NotificationEvent, NotificationId
from noonday.model.notifications.results import DispatchEvent, KeySettlement, NextDispatch, SendResult
from noonday.model.notifications.schedule import ScheduledRow
from noonday.notifications.accepting import StoredAcceptor
from noonday.notifications.dispatching import Sealer, next_row
from noonday.notifications.placing import Placing
from noonday.ports.bus import Bus
from noonday.ports.clock import Clock
from noonday.ports.notifications import NotificationEvents, ScheduledNotifications, SendKeys

log = structlog.get_logger("noonday.notifications")
BATCH = 500
KEY_KEPT_MS = 600_000
"""Least time that a key is kept after its send, so that no late delivery of the dispatch can take it again."""
UNSTARTED = frozenset({Outcome.INTERRUPTED, Outcome.REVOKED, Outcome.SNOOZED, Outcome.CANCELLED})
"""Outcomes of a dispatch that called no provider: another dispatch follows."""


class NotificationRecorder:
    """Records one partition of the notifications' log. Recording a report again changes nothing."""

    def __init__(
        self,
        *,
        bus: Bus,
        partition: int,
        scheduled: ScheduledNotifications,
        events: NotificationEvents,
        send_keys: SendKeys,
        acceptor: StoredAcceptor,
        placing: Placing,
        sealer: Sealer,
        keyring: Keyring,
        clock: Clock,
    ) -> None:
        self._bus = bus
        self._partition = partition
        self._scheduled = scheduled
        self._events = events
        self._send_keys = send_keys
        self._acceptor = acceptor
        self._placing = placing
        self._sealer = sealer
        self._keyring = keyring
        self._clock = clock
        self._offset = 0

    async def run_once(self, now_ms: int) -> int:
        return await self._record(wait_sec=0.5)

    async def drain(self) -> int:
        """Record what the log has, without waiting for more. Returns how many entries it had."""
        return await self._record(wait_sec=0)

    async def _record(self, wait_sec: float) -> int:
        batch = await self._bus.read(self._partition, self._offset, BATCH, wait_sec)
        if batch.entries:
            await self._apply(batch)
        # The offset moves only now: a batch whose stores were unavailable is recorded again.
        self._offset = batch.next_offset
        return len(batch.entries)

    async def _apply(self, batch: LogBatch) -> None:
        ends = [each for each in batch.entries if isinstance(each, Report) and each.outcome != Outcome.STARTED]
        results = [(report, await self._result_of(report)) for report in ends]
        following = [row for report, result in results for row in self._following(report, result)]
        if following:
            await self._acceptor.store(following, self._clock.now_ms())
        events = [self._sealed(report, event) for report, result in results for event in result.events]
        if events:
            await self._events.append(events)
        for report, result in results:
            await self._settle_key(report, result)

    async def _result_of(self, report: Report) -> SendResult:
        """Return what a sender reported, or what follows from how its dispatch ended."""
        if report.result is not None:
            try:
                opened = self._keyring.open(report.result, context_of(report.tenant, report.job_id))
                return msgspec.json.decode(opened, type=SendResult)
            except (BadKey, msgspec.MsgspecError) as error:
                log.exception("unreadable report", notification=report.execution_id, error=repr(error)[:300])
                return _ended(report, EventKind.UNKNOWN, "the report of its sender cannot be read")
        if report.outcome in UNSTARTED:
            return await self._again(report)
        reason = report.failure.message if report.failure else f"the sender ended with {Outcome(report.outcome).name}"
        # A sender that fails by itself has called no provider: it could not read the dispatch.
        kind = EventKind.FAILED if report.outcome == Outcome.FAILED else EventKind.UNKNOWN
        return _ended(report, kind, reason)

    async def _again(self, report: Report) -> SendResult:
        """Return a result that dispatches the notification again, unless a later dispatch exists."""
        notification = NotificationId(report.execution_id)
        row = await self._scheduled.find(TenantId(report.tenant), notification)
        if row is None or row.number != report.dispatch:
            return SendResult()
        try:
            dispatch = self._sealer.open_dispatch(row)
        except (BadKey, msgspec.MsgspecError):
            return _ended(report, EventKind.FAILED, "the stored notification cannot be read")
        at_ms = report.ended_ms
        detail = EventDetail(reason="its sender stopped before it called a provider", until_ms=at_ms)
        return SendResult(
            events=(DispatchEvent(EventKind.DEFERRED, at_ms, detail),),
            next=NextDispatch(at_ms, dispatch),
        )

    def _following(self, report: Report, result: SendResult) -> Sequence[ScheduledRow]:
        if result.next is None:
            return ()
        return [next_row(result.next, report.dispatch + 1, self._clock.now_ms(), self._placing, self._sealer)]

    def _sealed(self, report: Report, event: DispatchEvent) -> NotificationEvent:
        notification = NotificationId(report.execution_id)
        is_acceptance = event.kind is EventKind.ACCEPTED
        number = 0 if is_acceptance else report.dispatch
        parts = [event.kind] if is_acceptance else [event.kind, str(number), event.apart]
        sealed = self._sealer.seal(event.detail, report.tenant, notification)
        name = "/".join(part for part in parts if part)
        return NotificationEvent(report.tenant, notification, name, event.at_ms, event.kind, number, sealed)

    async def _settle_key(self, report: Report, result: SendResult) -> None:
        notification = NotificationId(report.execution_id)
        if result.key is KeySettlement.SENT:
            await self._send_keys.sent(
                report.tenant, result.send_key, notification, max(result.key_until_ms, report.ended_ms + KEY_KEPT_MS)
            )
        elif result.key is KeySettlement.RELEASE:
            await self._send_keys.release(report.tenant, result.send_key, notification, report.dispatch)


def _ended(report: Report, kind: EventKind, reason: str) -> SendResult:
    return SendResult(events=(DispatchEvent(kind, report.ended_ms, EventDetail(reason=reason)),))
