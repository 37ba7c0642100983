"""Set the caps of tenants and pools in SQLite."""

from collections.abc import Mapping

from noonday.drivers.sql.named_sql import load
from noonday.drivers.sql.sessions import SqlSession
from noonday.model.slots import SlotKey, pool_in

SQL = load("noonday.drivers.sqlite", "caps")


async def set_caps(session: SqlSession, owner: str, caps: Mapping[SlotKey, int | None]) -> None:
    for _, name in caps:
        await session.execute(SQL.uncap, owner, name)
    for (_, name), cap in caps.items():
        if cap is not None:
            await session.execute(SQL.count_in, name, owner, pool_in(name))
            await session.execute(SQL.cap, owner, name, await session.value(SQL.count_changes), cap)
    await session.execute(SQL.drop_free_slots)
