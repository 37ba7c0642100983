"""A report every night at 02:30 in Berlin, simulated over the two nights on which the clocks change.

`python cron_report.py` runs it without waiting, on the clock of the test kit. `noonday up cron_report:app` runs it in real time.
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
    """Return the title of a report. It uses the nominal time, so a late report has the right date."""
    return f"report of {ctx.scheduled_at.astimezone(BERLIN):%a %d %b %H:%M %Z}"


async def simulate(start: datetime) -> list[str]:
    """Simulate two days from `start` and return the results."""
    async with testing.engine(app, start=start) as engine:
        await engine.advance(days=2)
        return [execution.result for execution in reversed(engine.executions("nightly-report"))]


async def main() -> None:
    for season, start in NIGHTS.items():
        print(season, await simulate(start))


if __name__ == "__main__":
    asyncio.run(main())
