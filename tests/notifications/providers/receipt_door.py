"""A real HTTP server on the loopback that takes receipts, as the API does."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from noonday.model.notifications.provider_receipts import ReceiptRequest


class ReceiptDoor:
    """Keeps the requests that providers made, in the order of their arrival."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[ReceiptRequest] = []
        self._origin = ""

    async def take(self, request: web.Request) -> web.Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.requests.append(ReceiptRequest(self._origin + request.raw_path, headers, await request.read()))
        return web.Response(status=200)

    def open_at(self, port: int) -> None:
        self._origin = f"http://127.0.0.1:{port}"
        self.url = f"{self._origin}/v1/receipts/main"


@asynccontextmanager
async def receipt_door() -> AsyncIterator[ReceiptDoor]:
    door = ReceiptDoor()
    app = web.Application()
    app.router.add_post("/v1/receipts/main", door.take)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    door.open_at(runner.addresses[0][1])
    try:
        yield door
    finally:
        await runner.cleanup()
