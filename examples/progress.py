"""A long job that saves its progress, fails, and continues from there in the next attempt."""

import asyncio

from noonday import Backoff, Context, Noonday, RetryPolicy

app = Noonday()
NO_DELAY = RetryPolicy(max_attempts=3, backoff=Backoff.FIXED, initial_delay_ms=0)


@app.handler("copy_rows", pool="etl", timeout=4 * 3600, retry=NO_DELAY)
async def copy_rows(ctx: Context, payload: dict[str, int]) -> str:
    first_row = ctx.progress.get("row", 0)
    for row in range(first_row, payload["rows"]):
        if row == payload["fails_at"] and ctx.attempt == 1:
            raise ConnectionError(f"lost connection to the database at row {row}")
        await ctx.heartbeat({"row": row + 1, "of": payload["rows"]})
    return f"attempt {ctx.attempt} began at row {first_row}"


async def main() -> None:
    async with app.embedded("rows.db") as noonday:
        job = await app.enqueue(copy_rows, {"rows": 1_000, "fails_at": 600}, heartbeat_timeout_sec=60)
        print(await app.result(job, timeout=10))
        (execution,) = (await noonday.get_job(job.job_id)).executions
        print("progress", execution.progress)
        for attempt in execution.attempts:
            print(attempt.attempt, attempt.state, attempt.error.message if attempt.error else "")


if __name__ == "__main__":
    asyncio.run(main())
