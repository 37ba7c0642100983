from typing import NamedTuple

import pytest

from noonday.drivers.sql.named_sql import NamedSql, load


class Row(NamedTuple):
    """A row whose fields are in another order than the parameters of the statement."""

    payload: bytes
    id: str
    name: str | None


SQL = NamedSql({"add": "INSERT INTO jobs (id, name, at) VALUES (:id::uuid, :name, ':id') RETURNING :id"}, "$")


@pytest.mark.parametrize("package", ["noonday.drivers.sqlite", "noonday.drivers.postgres"])
def test_statement_is_an_attribute_without_its_semicolon(package: str) -> None:
    statement = load(package, "audit").add_audit
    assert statement.startswith("-- ")
    assert "INSERT INTO audit" in statement
    assert not statement.endswith(";")


def test_unknown_statement_is_an_error() -> None:
    with pytest.raises(AttributeError, match="no_such_statement"):
        load("noonday.drivers.sqlite", "jobs").no_such_statement  # noqa: B018


def test_named_parameters_get_numbers() -> None:
    assert SQL.add == "INSERT INTO jobs (id, name, at) VALUES ($1::uuid, $2, ':id') RETURNING $1"
    assert SQL.fields(SQL.add) == ("id", "name")


def test_named_parameters_are_fields_of_a_row_in_any_order() -> None:
    assert SQL.values(SQL.add, Row(b"{}", "7", None)) == ("7", None)
