"""A report every night at half past two in Berlin, rehearsed over the two nights on which the clocks change.

`python cron_report.py` needs no waiting: the test kit owns the clock. `noonday up cron_report:app` runs it for real.
"""

import asyncio
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from noonday import CatchUp, CatchUpPolicy, Context, Noonday, Overlap, testing

app = Noonday()
BERLIN = ZoneInfo("Europe/Berlin")
NIGHTS = {"spring": datetime(2026, 3, 28, 12, tzinfo=UTC), "autumn": datetime(2026, 10, 24, 12, tzinfo=UTC)}


@app.cron(
    "30 2 * * *",
    timezone="Europe/Berlin",
    name="nightly-report",
    overlap=Overlap.SKIP,
    catch_up=CatchUp(CatchUpPolicy.LATEST, window_sec=6 * 3600),
)
async def nightly_report(ctx: Context) -> str:
    """Named after its nominal time, so that a report made late still has the right date."""
    return f"report of {ctx.scheduled_at.astimezone(BERLIN):%a %d %b %H:%M %Z}"


async def rehearse(start: datetime) -> list[str]:
    """What two days from `start` on would bring."""
    async with testing.engine(app, start=start) as engine:
        await engine.advance(days=2)
        return [execution.result for execution in reversed(engine.executions("nightly-report"))]


async def main() -> None:
    for season, start in NIGHTS.items():
        print(season, await rehearse(start))


if __name__ == "__main__":
    asyncio.run(main())
