"""An application that has its own things to do, and leaves what can wait to Noonday, in the same process.

The handler runs on the loop of the application, so it may use what the application has opened there.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from noonday import Backoff, Context, Noonday, RetryPolicy
from noonday.model.view import JobView

app = Noonday()


class Mailbox:
    """Stands for a client that belongs to one event loop, such as an HTTP session."""

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
    """What a web framework would call. It returns as soon as the job is safely on disk."""
    return await app.enqueue(send_welcome, Welcome(form["address"], form["name"]))


async def main() -> None:
    global mailbox
    mailbox = Mailbox()
    async with app.embedded("app.db", concurrency={"mail": 4}, worker_drain_sec=10):
        jobs = [await sign_up({"address": f"{name.lower()}@example.com", "name": name}) for name in ("Ada", "Grace")]
        await asyncio.gather(*(app.result(job, timeout=10) for job in jobs))
    # Leaving the block lets what runs finish. What has not begun would stay in the file for the next start.
    print("sent", sorted(mailbox.sent))


if __name__ == "__main__":
    asyncio.run(main())
