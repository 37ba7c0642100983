"""From a digest to the job that sends it, and the handlers of such jobs.

A notice is sent as any job is run: retries, dead letters and the workers are the same. An operational webhook is called by the
handler that calls those of tasks; every other channel has a handler of its own, `notice.email` and the like.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from noonday.alerts.vouching import VouchedNotice, checked
from noonday.alerts.wording import event_of, subject_of, text_of_digest
from noonday.crypto.keyring import Keyring
from noonday.model.errors import DoNotRetry
from noonday.model.job import JobSpec, JobType, Target
from noonday.model.notice import ChannelType, Digest, Notice, Preference, Recipient
from noonday.model.pool import NOTICES_POOL
from noonday.model.retry import RetryPolicy
from noonday.ports.channels import Channel, Channels
from noonday.webhooks.handler import NAME as CALL
from noonday.webhooks.urls import read_url
from noonday.worker.context import Context
from noonday.worker.handler import Handler, Mode

TIMEOUT_SEC = 120.0
CALL_TIMEOUT_SEC = 30.0
POLICY = RetryPolicy(max_attempts=12)
"""Some hours: what is known only then is better found in the inbox."""
CONCURRENCY = 20
"""Notices that one process sends at once."""


def job_of(
    digest: Digest, preference: Preference, to: Recipient, at_ms: int, vouch: Callable[[Notice], VouchedNotice]
) -> JobSpec:
    """The job that sends a digest. Its unique key is the notice's: made twice, it is one."""
    if to.url is not None:
        target = Target(NOTICES_POOL, CALL, str(read_url(to.url)))
        payload: Any = {"webhook_url": to.url, "body": event_of(digest, at_ms)}
    else:
        target = Target(NOTICES_POOL, handler_name(to.type))
        payload = msgspec.to_builtins(vouch(_notice(digest, preference, to, at_ms)))
    return JobSpec(
        type=JobType.ONE_TIME,
        target=target,
        name=f"notice for {digest.preference}",
        payload=payload,
        unique_key=f"notice:{digest.id}",
        retry_policy=POLICY,
        timeout_sec=TIMEOUT_SEC if to.url is None else CALL_TIMEOUT_SEC,
    )


def handlers_of(channels: Channels, keyring: Keyring) -> dict[tuple[str, str], Handler]:
    """The handlers that send notices, by pool and name."""
    return {(NOTICES_POOL, handler_name(kind)): _handler(kind, channel, keyring) for kind, channel in channels.items()}


def handler_name(kind: ChannelType) -> str:
    return f"notice.{kind.lower()}"


def _notice(digest: Digest, preference: Preference, to: Recipient, at_ms: int) -> Notice:
    return Notice(
        id=digest.id,
        tenant=digest.tenant,
        preference=digest.preference,
        user=preference.user,
        address=to.address or "",
        subject=subject_of(digest),
        text=text_of_digest(digest),
        at_ms=at_ms,
    )


def _handler(kind: ChannelType, channel: Channel, keyring: Keyring) -> Handler:
    doc = f"Sends a notice by {kind.lower()}. Made for alert preferences."
    return Handler(handler_name(kind), NOTICES_POOL, _sending(channel, keyring), Mode.ASYNC, _decode, doc=doc)


def _decode(payload: bytes) -> VouchedNotice:
    try:
        return _read(payload)
    except msgspec.ValidationError as error:
        raise DoNotRetry(f"this is no notice: {error}") from error


_read = msgspec.json.Decoder(VouchedNotice).decode


def _sending(channel: Channel, keyring: Keyring) -> Callable[[Context, VouchedNotice], Awaitable[None]]:
    async def send(ctx: Context, vouched: VouchedNotice) -> None:
        await channel.send(checked(vouched, ctx.tenant, keyring))

    return send
