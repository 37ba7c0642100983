"""An application with Noonday embedded for background jobs.

The handler runs on the event loop of the application, so it can use objects that belong to that loop.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from noonday import Backoff, Context, Noonday, RetryPolicy
from noonday.model.view import JobView

app = Noonday()


class Mailbox:
    """Placeholder for a client that belongs to one event loop, such as an HTTP session."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.loop = asyncio.get_running_loop()

    async def send(self, address: str, text: str) -> None:
        assert asyncio.get_running_loop() is self.loop
        self.sent.append(f"{address}: {text}")


mailbox: Mailbox


@dataclass
class Welcome:
    address: str
    name: str


@app.handler("send_welcome", pool="mail", retry=RetryPolicy(max_attempts=3, backoff=Backoff.EXPONENTIAL))
async def send_welcome(ctx: Context, payload: Welcome) -> None:
    await mailbox.send(payload.address, f"Welcome, {payload.name}!")


async def sign_up(form: Mapping[str, str]) -> JobView:
    """Handle a request of a web framework. Returns as soon as the job is on disk."""
    return await app.enqueue(send_welcome, Welcome(form["address"], form["name"]))


async def main() -> None:
    global mailbox
    mailbox = Mailbox()
    async with app.embedded("app.db", concurrency={"mail": 4}, worker_drain_sec=10):
        jobs = [await sign_up({"address": f"{name.lower()}@example.com", "name": name}) for name in ("Ada", "Grace")]
        await asyncio.gather(*(app.result(job, timeout=10) for job in jobs))
    # At the end of the block, running handlers finish. Jobs that have not started stay in the file for the next start.
    print("sent", sorted(mailbox.sent))


if __name__ == "__main__":
    asyncio.run(main())
