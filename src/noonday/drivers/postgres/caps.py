"""Set the caps of tenants and pools in PostgreSQL."""

from collections.abc import Mapping

from noonday.drivers.sql.named_sql import load
from noonday.drivers.sql.sessions import SqlSession
from noonday.model.slots import SlotKey, pool_in

SQL = load("noonday.drivers.postgres", "caps")


async def set_caps(session: SqlSession, owner: str, caps: Mapping[SlotKey, int | None]) -> None:
    """Set caps by one function, so that no lock waits for this client."""
    names = [name for _, name in caps]
    await session.value(SQL.set_caps, owner, names, [pool_in(name) for name in names], list(caps.values()))
