"""Jobs that send digests, and their handlers.

A notice is an ordinary job, with the same retries, dead letters and workers. The handler of tasks also calls operational
webhooks. Every other channel has its own handler, such as `notice.email`.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from noonday.alerts.sealed_notices import SealedNotice, open_notice
from noonday.alerts.wording import event_of, subject_of, text_of_digest
from noonday.crypto.keyring import Keyring
from noonday.model.errors import DoNotRetry
from noonday.model.handler import Handler, Mode
from noonday.model.job import JobSpec, JobType, Target
from noonday.model.notice import ChannelType, Digest, Notice, Preference, Recipient
from noonday.model.pool import NOTICES_POOL
from noonday.model.retry import RetryPolicy
from noonday.model.url import read_url
from noonday.ports.channels import Channel, Channels
from noonday.webhooks.handler import NAME as CALL
from noonday.worker.context import Context

TIMEOUT_SEC = 120.0
CALL_TIMEOUT_SEC = 30.0
POLICY = RetryPolicy(max_attempts=12)
"""Retries a notice for some hours. After that the inbox serves better than a late message."""
CONCURRENCY = 20
"""Maximum number of notices that one process sends at once."""


def job_of(
    digest: Digest,
    preference: Preference,
    to: Recipient,
    at_ms: int,
    seal: Callable[[Notice], SealedNotice],
    attempts: int | None = None,
) -> JobSpec:
    """Build the job that sends a digest. Its unique key names the notice, so creating it twice makes one job.

    `attempts` is passed on to `wording.subject_of`.
    """
    if to.url is not None:
        target = Target(NOTICES_POOL, CALL, str(read_url(to.url)))
        payload: Any = {"webhook_url": to.url, "body": event_of(digest, at_ms)}
    else:
        target = Target(NOTICES_POOL, handler_name(to.type))
        payload = msgspec.to_builtins(seal(_notice(digest, preference, to, at_ms, attempts)))
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
    """Return the handlers that send notices, by pool and name."""
    return {
        (NOTICES_POOL, handler_name(type_)): _handler(type_, channel, keyring) for type_, channel in channels.items()
    }


def handler_name(type_: ChannelType) -> str:
    return f"notice.{type_.lower()}"


def _notice(digest: Digest, preference: Preference, to: Recipient, at_ms: int, attempts: int | None) -> Notice:
    return Notice(
        id=digest.id,
        tenant=digest.tenant,
        preference=digest.preference,
        user=preference.user,
        address=to.address or "",
        subject=subject_of(digest, attempts),
        text=text_of_digest(digest),
        at_ms=at_ms,
    )


def _handler(type_: ChannelType, channel: Channel, keyring: Keyring) -> Handler:
    doc = f"Sends a notice by {type_.lower()}. Alert preferences create its jobs."
    return Handler(handler_name(type_), NOTICES_POOL, _sender(channel, keyring), Mode.ASYNC, _decode, doc=doc)


def _decode(payload: bytes) -> SealedNotice:
    try:
        return _decode_json(payload)
    except msgspec.ValidationError as error:
        raise DoNotRetry(f"the payload is not a notice: {error}") from error


_decode_json = msgspec.json.Decoder(SealedNotice).decode


def _sender(channel: Channel, keyring: Keyring) -> Callable[[Context, SealedNotice], Awaitable[None]]:
    async def send(ctx: Context, sealed: SealedNotice) -> None:
        await channel.send(open_notice(sealed, ctx.tenant, keyring))

    return send
