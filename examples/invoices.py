"""Generate invoices every night: a handler with a typed payload and progress, and a job declared in code.

Run it inside this program:            python invoices.py
Run it with an API and a command line: noonday up invoices:app
"""

import asyncio
from datetime import date
from zoneinfo import ZoneInfo

import msgspec

from noonday import Context, Noonday
from noonday.model.view import JobView

app = Noonday()
ZONE = "America/Los_Angeles"


class DateRange(msgspec.Struct):
    first: date
    last: date
    pages: int = 3


@app.handler("generate_invoices", pool="batch-etl", timeout=600)
async def generate_invoices(ctx: Context, payload: DateRange) -> dict[str, int]:
    """Write the invoices of a range of days. A further attempt continues where the last one stopped."""
    for page in range(ctx.progress.get("page", 0), payload.pages):
        await write_page(payload, page, key=f"{ctx.execution_id}/{page}")
        await ctx.heartbeat({"page": page + 1})
    return {"pages": payload.pages}


@app.cron("0 3 * * *", timezone=ZONE, name="daily-invoice-gen", pool="batch-etl")
async def nightly(ctx: Context) -> dict[str, int]:
    """Generate the invoices of one day. Handlers are plain functions, so one can call another."""
    day = ctx.scheduled_at.astimezone(ZoneInfo(ZONE)).date()
    return await generate_invoices(ctx, DateRange(day, day))


async def order_invoices(first: date, last: date) -> JobView:
    """Create a job for a range of days. A second call for the same days does not create another job."""
    return await app.enqueue(generate_invoices, DateRange(first, last), unique_key=f"invoices/{first}/{last}")


async def write_page(days: DateRange, page: int, key: str) -> None:
    """Placeholder for your code. `key` is the same for every attempt of a page, so that duplicates can be dropped."""


async def main() -> None:
    async with app.embedded("invoices.db"):
        job = await order_invoices(date(2030, 1, 1), date(2030, 1, 31))
        print(await app.result(job, timeout=10))


if __name__ == "__main__":
    asyncio.run(main())
