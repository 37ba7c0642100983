from datetime import UTC, datetime

import pytest

from noonday.api.dead_letters import DeadLetterQuery
from noonday.api.executions import ExecutionSearchQuery
from noonday.api.jobs import JobQuery
from noonday.api.query import QueryReader
from noonday.model.errors import Flaw, InvalidInput
from noonday.model.job import JobType

JOBS = QueryReader(JobQuery)
EXECUTIONS = QueryReader(ExecutionSearchQuery)
DEAD = QueryReader(DeadLetterQuery)


def flaws_in(reader: QueryReader, query: bytes) -> list[Flaw]:
    with pytest.raises(InvalidInput) as refused:
        reader.read(query)
    return list(refused.value.flaws)


def test_parameters_are_read_by_their_wire_names_and_types():
    assert JOBS.read(b"uniqueKey=a%20b&type=CRON&limit=7") == JobQuery(unique_key="a b", type=JobType.CRON, limit=7)


def test_empty_query_returns_defaults():
    assert JOBS.read(b"") == JobQuery()


def test_an_instant_needs_an_offset():
    assert DEAD.read(b"since=2030-01-01T00:00:00Z").since == datetime(2030, 1, 1, tzinfo=UTC)
    (flaw,) = flaws_in(DEAD, b"since=2030-01-01T00:00:00")
    assert flaw.pointer == "/since"


def test_an_unknown_parameter_is_named_with_the_nearest():
    (flaw,) = flaws_in(JOBS, b"limt=7")
    assert (flaw.pointer, flaw.value, flaw.nearest) == ("/limt", "7", "limit")


def test_repeated_query_parameter_is_rejected():
    (flaw,) = flaws_in(JOBS, b"limit=7&limit=8")
    assert flaw.detail == "query parameter limit is repeated; send it once"


def test_invalid_enum_value_lists_the_allowed_ones():
    (flaw,) = flaws_in(JOBS, b"state=ACTVE")
    assert (flaw.value, flaw.nearest) == ("ACTVE", "ACTIVE")
    assert flaw.allowed == ["ACTIVE", "CANCELLED", "COMPLETED", "DEAD", "PAUSED"]


@pytest.mark.parametrize("text", ["0", "501", "1.0", "-1", "", "1e2", "%D9%A1", "9" * 5000, "null"])
def test_a_page_has_1_to_500_entries(text: str):
    (flaw,) = flaws_in(JOBS, f"limit={text}".encode())
    assert flaw.pointer == "/limit"


@pytest.mark.parametrize(("text", "seconds"), [("2", 2.0), ("0.25", 0.25)])
def test_a_number_may_have_a_fraction(text: str, seconds: float):
    assert EXECUTIONS.read(f"lateOver={text}".encode()).late_over == seconds


@pytest.mark.parametrize("text", ["-1", "1e3", "nan", "Infinity", "1.", ".5", "", "9" * 30])
def test_a_malformed_or_excessive_number_is_rejected(text: str):
    (flaw,) = flaws_in(EXECUTIONS, f"lateOver={text}".encode())
    assert flaw.pointer == "/lateOver"


@pytest.mark.parametrize("text", ["True", "1", "yes", ""])
def test_boolean_parameter_accepts_only_true_and_false(text: str):
    (flaw,) = flaws_in(DEAD, f"archived={text}".encode())
    assert flaw.pointer == "/archived"


def test_query_reports_every_flaw():
    assert [flaw.pointer for flaw in flaws_in(JOBS, b"limt=1&limit=x&type=y")] == ["/limt", "/limit", "/type"]


@pytest.mark.parametrize("query", [b"name=%ff", b"name=\xff", b"&".join([b"a=1"] * 101)])
def test_malformed_query_string_is_rejected(query: bytes):
    assert flaws_in(JOBS, query) == []


def test_nul_character_is_accepted():
    assert JOBS.read(b"name=%00").name == "\0"
