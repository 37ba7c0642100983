"""A long job that says how far it is, is interrupted, and goes on where it was."""

import asyncio

from noonday import Backoff, Context, Noonday, RetryPolicy

app = Noonday()
AT_ONCE = RetryPolicy(max_attempts=3, backoff=Backoff.FIXED, initial_delay_ms=0)


@app.handler("copy_rows", pool="etl", timeout=4 * 3600, retry=AT_ONCE)
async def copy_rows(ctx: Context, payload: dict[str, int]) -> str:
    begun_at = ctx.progress.get("row", 0)
    for row in range(begun_at, payload["rows"]):
        if row == payload["breaks_at"] and ctx.attempt == 1:
            raise ConnectionError(f"the database went away at row {row}")
        await ctx.heartbeat({"row": row + 1, "of": payload["rows"]})
    return f"attempt {ctx.attempt} began at row {begun_at}"


async def main() -> None:
    async with app.embedded("rows.db") as noonday:
        job = await app.enqueue(copy_rows, {"rows": 1_000, "breaks_at": 600}, heartbeat_timeout_sec=60)
        print(await app.result(job, timeout=10))
        (execution,) = (await noonday.get_job(job.job_id)).executions
        print("progress", execution.progress)
        for attempt in execution.attempts:
            print(attempt.attempt, attempt.state, attempt.error.message if attempt.error else "")


if __name__ == "__main__":
    asyncio.run(main())
