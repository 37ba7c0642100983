"""Turn rows into dispatches, and notifications into rows."""

import msgspec

from noonday.crypto.envelope import context_of
from noonday.crypto.keyring import Keyring
from noonday.model.ids import ExecutionId, JobId
from noonday.model.message import Dispatch
from noonday.model.notifications.identity import lane_of
from noonday.model.notifications.notification import (
    MINUTE_MS,
    EventDetail,
    EventKind,
    NotificationDispatch,
    NotificationEvent,
)
from noonday.model.notifications.results import NextDispatch
from noonday.model.notifications.schedule import ScheduledRow
from noonday.model.notifications.sending import ChannelKind
from noonday.notifications.placing import Placing, later_shard_of

HANDLER = "notification.send"
POOLS = {ChannelKind.PUSH: "push", ChannelKind.SMS: "sms", ChannelKind.EMAIL: "email"}
"""The pool of workers that sends over each channel."""
SEND_TIMEOUT_SEC = 600.0
"""Timeout of a dispatch. Each call of a provider has one of some seconds, so only a process that stood still reaches this one."""
DIRECT_MS = 4_000
"""A dispatch due within this time goes to the topic at once: its row may come too late for the poller."""
READ_AHEAD_MS = 1_000
"""How far ahead of its time a poller publishes a row. Workers wait for the instant."""

EXPIRED_UNSENT = "it expired before it could be sent"
CLOSES_AFTER_MS = 30_000
"""A bucket may be closed this long after the end of its minute."""


class Sealer:
    """Seals what notifications keep: payloads and details of events, each bound to its tenant and notification."""

    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring

    def seal(self, value: object, tenant: str, notification: str) -> bytes:
        return self._keyring.seal(msgspec.json.encode(value), context_of(tenant, notification))

    def open_dispatch(self, row: ScheduledRow) -> NotificationDispatch:
        """Return what a row dispatches. Raises BadKey, or msgspec.DecodeError if another release wrote it."""
        return msgspec.json.decode(
            self._keyring.open(row.data, context_of(row.tenant, row.id)), type=NotificationDispatch
        )

    def open_detail(self, event: NotificationEvent) -> EventDetail:
        """Return the detail of an event. Raises BadKey, or msgspec.DecodeError if another release wrote it."""
        sealed = self._keyring.open(event.detail, context_of(event.tenant, event.notification_id))
        return msgspec.json.decode(sealed, type=EventDetail)


def row_of(
    dispatch: NotificationDispatch, number: int, scheduled_ms: int, now_ms: int, placing: Placing, sealer: Sealer
) -> ScheduledRow:
    """Return the row of a dispatch in the bucket that `placing` chooses."""
    notification = dispatch.notification
    return ScheduledRow(
        bucket=placing.place(notification, dispatch.channel, scheduled_ms, number),
        scheduled_ms=scheduled_ms,
        id=notification.id,
        number=number,
        tenant=notification.tenant,
        user_id=notification.user_id,
        channel=dispatch.channel,
        data=sealer.seal(dispatch, notification.tenant, notification.id),
        created_ms=now_ms,
        expires_ms=notification.expires_ms,
    )


def next_row(following: NextDispatch, number: int, now_ms: int, placing: Placing, sealer: Sealer) -> ScheduledRow:
    """Return the row of a dispatch that follows another one. It depends on these alone, so a replay stores the same row."""
    return row_of(following.dispatch, number, following.at_ms, now_ms, placing, sealer)


def moved(row: ScheduledRow, now_ms: int) -> ScheduledRow:
    """Return a row in the bucket of the present minute, because its own may be closed."""
    bucket = row.bucket._replace(minute=now_ms // MINUTE_MS, share=row.tenant, shard=later_shard_of(row.id))
    return msgspec.structs.replace(row, bucket=bucket, scheduled_ms=now_ms)


def dispatch_of(row: ScheduledRow, stamp_ms: int) -> Dispatch:
    """Return the dispatch of a row. `stamp_ms`: a time before the row was read or stored, so that a process that stalled
    meanwhile cannot make it look fresh."""
    return Dispatch(
        execution_id=ExecutionId(row.id),
        number=row.number,
        job_id=JobId(row.id),
        tenant=row.tenant,
        pool=POOLS[row.channel],
        handler=HANDLER,
        due_ms=row.scheduled_ms,
        nominal_ms=row.scheduled_ms,
        # An attempt as high as the number: no worker announces the start of a dispatch that follows an earlier one.
        attempt=row.number,
        fired_ms=stamp_ms,
        revision=1,
        timeout_sec=SEND_TIMEOUT_SEC,
        heartbeat_timeout_sec=None,
        start_deadline_sec=None,
        payload=row.data,
        progress=None,
        trace=None,
        lane=lane_of(row.bucket.stream),
    )


def event_of(
    sealer: Sealer, row: ScheduledRow, kind: EventKind, at_ms: int, detail: EventDetail, apart: str = ""
) -> NotificationEvent:
    """Return an event about the dispatch of a row."""
    name = f"{kind}/{row.number}/{apart}" if apart else f"{kind}/{row.number}"
    sealed = sealer.seal(detail, row.tenant, row.id)
    return NotificationEvent(row.tenant, row.id, name, at_ms, kind, row.number, sealed)
