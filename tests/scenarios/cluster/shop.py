"""An application whose handlers write to the database in which the cluster keeps its executions."""

import asyncio
import os

import asyncpg
import psycopg

from noonday import Context, Noonday

app = Noonday()
URL = "NOONDAY_POSTGRES_URL"
WRITE = "INSERT INTO {schema}_shop.effects (execution, what) VALUES ('{execution}', '{what}')"


@app.handler("ship", pool="shop")
async def ship(ctx: Context, payload: dict[str, int]) -> str:
    """Fail as often as the payload says, after the write and the completion."""
    connection = await asyncpg.connect(os.environ[URL])
    try:
        async with connection.transaction():
            await connection.execute(_write(ctx, "shipped"))
            await ctx.complete(connection, f"shipped {payload['order']}")
            if ctx.attempt <= payload.get("failures", 0):
                raise ValueError("told to fail before the commit")
    finally:
        await connection.close()
    return "nobody reads this"


@app.handler("ship_and_go_on", pool="shop")
async def ship_and_go_on(ctx: Context, payload: dict[str, int]) -> None:
    """Run for a while, commit the end, go on for a while, and fail."""
    await asyncio.sleep(0.8)
    async with await psycopg.AsyncConnection.connect(os.environ[URL]) as connection:
        await connection.execute(_write(ctx, "shipped").encode())
        await ctx.complete(connection, payload["order"])
    for _ in range(30):
        await asyncio.sleep(0.1)
    async with await psycopg.AsyncConnection.connect(os.environ[URL]) as connection:
        await connection.execute(_write(ctx, "went on").encode())
    raise ValueError("told to fail after the commit")


@app.handler("plain", pool="shop")
def plain(ctx: Context) -> str:
    try:
        ctx.complete(None)
    except Exception as error:
        return str(error)
    return "completed"


@app.cron("0 3 * * *", name="nightly", pool="shop")
async def nightly(ctx: Context) -> None: ...


def _write(ctx: Context, what: str) -> str:
    schema = os.environ["NOONDAY_POSTGRES_SCHEMA"]
    return WRITE.format(schema=schema, execution=ctx.execution_id, what=what)
