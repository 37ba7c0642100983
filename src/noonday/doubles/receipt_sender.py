"""Receipts that doubles send to the URLs of their callers."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from ipaddress import ip_address

import aiohttp
from yarl import URL

from noonday.doubles.outbox import DoubleOutbox, SentReceipt
from noonday.ports.clock import Clock

MAX_WAITING = 10_000
"""Maximum number of messages whose receipts are still to be sent. Receipts of further ones are dropped."""
MAX_CALLS = 50
TIMEOUT_SEC = 15.0

Post = Callable[[], tuple[str, dict[str, str], bytes]]
"""Returns URL, headers and body of a receipt."""


class ReceiptSender:
    """Sends the receipts of each message in the order of its script. A receipt that is not taken is not repeated."""

    def __init__(self, outbox: DoubleOutbox, clock: Clock) -> None:
        self._outbox = outbox
        self._clock = clock
        self._sending: set[asyncio.Task[None]] = set()
        self._calls = asyncio.Semaphore(MAX_CALLS)
        self._session: aiohttp.ClientSession | None = None
        self.dropped = 0
        """Messages whose receipts were not sent, because too many were waiting."""

    @property
    def waiting(self) -> int:
        """Number of messages whose receipts are still to be sent."""
        return len(self._sending)

    def send_all(self, provider_id: str, receipts: Sequence[tuple[str, Post]], delay_ms: int) -> None:
        """Send receipts, each as (state, request), with a delay before each."""
        if receipts:
            self._start(lambda: self._send_all(provider_id, receipts, delay_ms))

    async def close(self) -> None:
        """Drop what is waiting."""
        for sending in self._sending:
            sending.cancel()
        if self._sending:
            await asyncio.wait(self._sending)
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def post(self, post: Post) -> tuple[int | None, str | None]:
        """Send one request. Returns the status of its answer, or the error."""
        url, headers, body = post()
        if not is_on_loopback(url):
            return None, "a double calls loopback addresses only"
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=TIMEOUT_SEC)
            self._session = aiohttp.ClientSession(timeout=timeout, trust_env=False)
        try:
            async with (
                self._calls,
                self._session.post(URL(url, encoded=True), data=body, headers=headers, allow_redirects=False) as answer,
            ):
                return answer.status, None
        except (aiohttp.ClientError, OSError) as error:
            return None, type(error).__name__

    def _start(self, send: Callable[[], Coroutine[None, None, None]]) -> None:
        if len(self._sending) >= MAX_WAITING:
            self.dropped += 1
            return
        sending = asyncio.create_task(send())
        self._sending.add(sending)
        sending.add_done_callback(self._sending.discard)

    async def _send_all(self, provider_id: str, receipts: Sequence[tuple[str, Post]], delay_ms: int) -> None:
        for state, post in receipts:
            if delay_ms:
                await self._clock.sleep(delay_ms / 1000)
            status, error = await self.post(post)
            self._outbox.add_receipt(provider_id, SentReceipt(state, self._clock.now_ms(), status, error))


def is_on_loopback(url: str) -> bool:
    """Return whether a URL names this machine: `localhost` or an address of the loopback."""
    try:
        host = URL(url).host or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
