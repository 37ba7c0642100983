"""Built-in handler that calls webhooks. It imports the HTTP client at the first call."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from noonday.crypto.keyring import Keyring
from noonday.model.handler import Handler, Mode
from noonday.model.pool import WEBHOOKS_POOL
from noonday.ports.clock import Clock
from noonday.worker.context import Context

if TYPE_CHECKING:
    from noonday.webhooks.sending import WebhookSender

POOL, NAME = WEBHOOKS_POOL, "webhook.call"
MAX_TIMEOUT_SEC = 300.0
"""Default maximum duration of a call, in seconds (webhooks.max_timeout_sec)."""
SLACK_SEC = 5.0
"""Seconds that the worker adds to the timeout: a call ends itself at its timeout and then reports how far it came."""

CLOSE_SEC = 0.5
"""Time that closing waits for the event loop of the handlers, in seconds."""


@dataclass(eq=False)
class WebhookHandler:
    """Calls webhooks on the event loop of the handlers."""

    keyring: Keyring
    clock: Clock
    user_agent: str = field(default="noonday", kw_only=True)
    allow_networks: Sequence[str] = field(default=(), kw_only=True)
    ca_file: Path | None = field(default=None, kw_only=True)
    max_timeout_sec: float = field(default=MAX_TIMEOUT_SEC, kw_only=True)
    _sender: "WebhookSender | None" = field(default=None, init=False)
    _loop: asyncio.AbstractEventLoop | None = field(default=None, init=False)

    def handler(self) -> Handler:
        doc = "Calls a webhook. /v1/tasks creates its jobs."
        return Handler(NAME, POOL, self.call, Mode.ASYNC, _decode, _encode, doc=doc, slack_sec=SLACK_SEC)

    async def call(self, ctx: Context, payload: Any) -> Any:
        return await self._open().send(ctx, payload)

    async def close(self) -> None:
        """Close all connections. May be called from any event loop.

        If the loop of the handlers is blocked, connections stay open until the process ends.
        """
        if self._sender is None or self._loop is None:
            return
        sender, self._sender = self._sender, None
        if self._loop is asyncio.get_running_loop():
            await sender.close()
        else:
            closing = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(sender.close(), self._loop))
            await asyncio.wait({closing}, timeout=CLOSE_SEC)

    def _open(self) -> "WebhookSender":
        if self._sender is None:
            from noonday.webhooks.addresses import Networks
            from noonday.webhooks.calling import WebhookClient
            from noonday.webhooks.sending import WebhookSender

            self._loop = asyncio.get_running_loop()
            networks = Networks(self.allow_networks)
            client = WebhookClient(networks, self.clock, ca_file=self.ca_file)
            self._sender = WebhookSender(client, self.keyring, self.user_agent, self.max_timeout_sec)
        return self._sender


def _decode(payload: bytes) -> Any:
    from noonday.webhooks.sending import WebhookCall

    return msgspec.json.decode(payload, type=WebhookCall)


_encode = msgspec.json.Encoder().encode
