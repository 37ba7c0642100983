"""Errors of PostgreSQL: those about data, and those that pass."""

from collections.abc import AsyncIterator

import asyncpg
import pytest

from noonday.drivers.postgres.connection import PostgresDatabase, PostgresOptions, translated
from noonday.model.errors import BadData, NoondayError, StoreFailed, StoreUnavailable, is_bad_data
from tests.support.servers_up import postgres_url

RAISE = "DO $$ BEGIN RAISE EXCEPTION 'told to' USING ERRCODE = '{}'; END $$"


@pytest.fixture
async def database() -> AsyncIterator[PostgresDatabase]:
    opened = await PostgresDatabase.open(PostgresOptions(postgres_url(), sessions=1))
    yield opened
    await opened.close()


async def error_of(database: PostgresDatabase, statement: str, *parameters: object) -> NoondayError:
    with pytest.raises(NoondayError) as caught:
        await database.value(statement, *parameters)
    return caught.value


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("22P05", BadData),
        ("22003", BadData),
        ("22023", BadData),
        ("23502", BadData),
        ("23505", BadData),
        ("23514", BadData),
        ("XX000", StoreFailed),
        ("XX001", StoreFailed),
        ("58030", StoreFailed),
        ("58P01", StoreFailed),
        ("0A000", StoreFailed),
        ("42883", StoreFailed),
        ("42703", StoreFailed),
        ("42501", StoreFailed),
        ("54001", StoreFailed),
        ("P0001", StoreFailed),
        ("P0004", StoreFailed),
        ("ZZ999", StoreFailed),
        ("42P01", StoreUnavailable),
        ("08006", StoreUnavailable),
        ("25006", StoreUnavailable),
        ("40001", StoreUnavailable),
        ("40P01", StoreUnavailable),
        ("53100", StoreUnavailable),
        ("53300", StoreUnavailable),
        ("55P03", StoreUnavailable),
        ("57014", StoreUnavailable),
        ("57P01", StoreUnavailable),
    ],
)
async def test_only_errors_about_data_are_final(
    database: PostgresDatabase, state: str, kind: type[NoondayError]
) -> None:
    error = await error_of(database, RAISE.format(state))
    assert type(error) is kind
    assert is_bad_data(error) == (state[:2] in ("22", "23"))


@pytest.mark.parametrize(
    ("statement", "value"),
    [
        ("SELECT $1::bigint", 2**70),
        ("SELECT $1::text", "a NUL \x00"),
        ("SELECT $1::text", "half a character \ud800"),
        ("SELECT $1::jsonb", '"\\u0000"'),
        ("SELECT $1::uuid", "not an id"),
    ],
)
async def test_a_value_that_cannot_be_sent_is_bad_data(
    database: PostgresDatabase, statement: str, value: object
) -> None:
    assert type(await error_of(database, statement, value)) is BadData


async def test_errors_of_our_own_functions_reach_their_callers(database: PostgresDatabase) -> None:
    with pytest.raises(asyncpg.PostgresError, match="told to"):
        await database.value(RAISE.format("ND002"))


@pytest.mark.parametrize("error", [OSError("reset"), TimeoutError(), asyncpg.InterfaceError("closed")])
def test_a_connection_that_breaks_means_not_now(error: Exception) -> None:
    with pytest.raises(StoreUnavailable) as caught, translated():
        raise error
    assert type(caught.value) is StoreUnavailable
