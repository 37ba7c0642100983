import pytest

from noonday.drivers.sql.named_sql import load


@pytest.mark.parametrize("package", ["noonday.drivers.sqlite", "noonday.drivers.postgres"])
def test_statement_is_an_attribute_without_its_semicolon(package: str) -> None:
    statement = load(package, "audit").add_audit
    assert statement.startswith("-- ")
    assert "INSERT INTO audit" in statement
    assert not statement.endswith(";")


def test_unknown_statement_is_an_error() -> None:
    with pytest.raises(AttributeError, match="no_such_statement"):
        load("noonday.drivers.sqlite", "jobs").no_such_statement  # noqa: B018
