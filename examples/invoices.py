"""Invoices, page by page, every night: a handler with a typed payload, progress, and a job declared in code.

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
    """Writes the invoices of a range of days, and goes on where the last attempt stopped."""
    for page in range(ctx.progress.get("page", 0), payload.pages):
        await write_page(payload, page, key=f"{ctx.execution_id}/{page}")
        await ctx.heartbeat({"page": page + 1})
    return {"pages": payload.pages}


@app.cron("0 3 * * *", timezone=ZONE, name="daily-invoice-gen", pool="batch-etl")
async def nightly(ctx: Context) -> dict[str, int]:
    """Handlers are plain functions: one may call another."""
    day = ctx.scheduled_at.astimezone(ZoneInfo(ZONE)).date()
    return await generate_invoices(ctx, DateRange(day, day))


async def order_invoices(first: date, last: date) -> JobView:
    """For the rest of the application. Ordered twice, the same days are one job."""
    return await app.enqueue(generate_invoices, DateRange(first, last), unique_key=f"invoices/{first}/{last}")


async def write_page(days: DateRange, page: int, key: str) -> None:
    """Stands for your own work. `key` is the same however often the page is tried, so it can be written once."""


async def main() -> None:
    async with app.embedded("invoices.db"):
        job = await order_invoices(date(2030, 1, 1), date(2030, 1, 31))
        print(await app.result(job, timeout=10))


if __name__ == "__main__":
    asyncio.run(main())
