import asyncio
import threading

import pytest

from noonday.crypto.keyring import Keyring
from noonday.runtime.clock import SystemClock
from noonday.webhooks.handler import WebhookHandler
from noonday.worker.host import HandlerThread


@pytest.mark.slow
async def test_close_does_not_wait_for_a_blocked_loop() -> None:
    thread, unblock = HandlerThread(asyncio.new_event_loop, "handlers"), threading.Event()
    webhooks = WebhookHandler(Keyring.generate(), SystemClock())

    async def open_it() -> None:
        webhooks._open()

    try:
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(open_it(), thread.loop))
        thread.loop.call_soon_threadsafe(unblock.wait)
        async with asyncio.timeout(60):
            await webhooks.close()
        assert not unblock.is_set()
    finally:
        unblock.set()
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asyncio.sleep(0.1), thread.loop))
        thread.close()
