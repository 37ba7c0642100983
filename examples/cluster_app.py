"""Two pools that scale independently: slow data processing, and many short emails.

In a cluster, each pool has as many workers as it needs, on any machine:

    noonday worker cluster_app:app --pool batch-etl --concurrency 4
    noonday worker cluster_app:app --pool emails --concurrency 500

`python cluster_app.py` runs both pools in one process, without a cluster.
"""

import asyncio
from collections import Counter

from noonday import Backoff, Context, Noonday, RetryPolicy

app = Noonday()


@app.handler("etl.count_words", pool="batch-etl", timeout=600)
async def count_words(ctx: Context, payload: list[str]) -> dict[str, int]:
    """Count words, and save the progress after each page, so that the next attempt continues after an interruption."""
    counted: Counter[str] = Counter(ctx.progress.get("counted", {}))
    for page in range(ctx.progress.get("page", 0), len(payload)):
        counted.update(payload[page].split())
        await ctx.heartbeat({"page": page + 1, "counted": dict(counted)})
    return dict(counted)


@app.handler("emails.send", pool="emails", retry=RetryPolicy(max_attempts=5, backoff=Backoff.EXPONENTIAL))
async def send_email(ctx: Context, payload: dict[str, str]) -> str:
    """Send an email. The execution id is the same for every attempt, so a mail server can drop duplicates."""
    await deliver(payload["to"], payload["text"], message_id=ctx.execution_id)
    return f"sent to {payload['to']}"


async def deliver(to: str, text: str, message_id: str) -> None:
    """Placeholder for your mail server."""


async def main() -> None:
    async with app.embedded("cluster_app.db", concurrency={"batch-etl": 4, "emails": 50}):
        count = await app.enqueue(count_words, ["to be or", "not to be"])
        mail = await app.enqueue(send_email, {"to": "ada@example.com", "text": "Good news!"})
        print(await app.result(count, timeout=10))
        print(await app.result(mail, timeout=10))


if __name__ == "__main__":
    asyncio.run(main())
