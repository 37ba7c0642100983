"""Databases that share a store have the same statements, with the same parameters."""

import re
from importlib.resources import files

import pytest

from noonday.drivers.sql.named_sql import load

SQLITE, POSTGRES = "noonday.drivers.sqlite", "noonday.drivers.postgres"
NOT_STORES = {"__init__", "named_rows", "named_sql", "sessions", "store"}
STORES = sorted(
    path.name.removesuffix(".py")
    for path in files("noonday.drivers.sql").iterdir()
    if path.name.endswith(".py") and path.name.removesuffix(".py") not in NOT_STORES
)


def parameters_of(statement: str) -> set[int]:
    return {int(number) for number in re.findall(r"[?$](\d+)", re.sub(r"--.*", "", statement))}


@pytest.mark.parametrize("store", STORES)
def test_dialects_have_statements_of_the_same_names(store: str) -> None:
    assert list(load(SQLITE, store).statements) == list(load(POSTGRES, store).statements)


@pytest.mark.parametrize("store", STORES)
def test_statement_has_the_same_parameters_in_each_dialect(store: str) -> None:
    sqlite, postgres = load(SQLITE, store).statements, load(POSTGRES, store).statements
    assert {name: parameters_of(text) for name, text in sqlite.items()} == {
        name: parameters_of(text) for name, text in postgres.items()
    }
