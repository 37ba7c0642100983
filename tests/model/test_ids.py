import uuid
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonday.model.ids import (
    FIRST_ID,
    LAST_ID,
    PARTITIONS,
    JobId,
    discriminator,
    execution_id,
    first_id_at,
    is_id,
    new_job_id,
    partition_of,
    stable_fraction,
)
from tests.support.factories import NOW_MS

JOB = JobId("01900000-0000-7000-8000-000000000001")
instants = st.integers(0, 2**48 - 1)
jobs = st.uuids().map(lambda found: JobId(str(found)))


@pytest.mark.slow
@given(jobs, instants, instants, st.text(), st.text())
def test_executions_sort_by_their_nominal_time(job: JobId, a: int, b: int, tag: str, other: str) -> None:
    if a != b:
        assert (execution_id(job, a, tag) < execution_id(job, b, other)) == (a < b)


@pytest.mark.slow
@given(jobs, instants, st.text())
def test_an_execution_id_is_a_uuid_of_version_8_that_begins_with_its_time(job: JobId, at: int, tag: str) -> None:
    made = execution_id(job, at, tag)
    parsed = uuid.UUID(made)
    assert str(parsed) == made
    assert (parsed.version, parsed.variant) == (8, uuid.RFC_4122)
    assert parsed.int >> 80 == at


def test_an_execution_id_never_changes() -> None:
    """Stores contain these ids."""
    assert execution_id(JOB, NOW_MS) == "01b8dac5-b400-8b60-acff-c2b7aacff68c"
    assert execution_id(JOB, NOW_MS, "trigger:1") == "01b8dac5-b400-873d-ae94-20709b713044"


@pytest.mark.slow
@given(jobs, jobs, instants, instants, st.text(), st.text())
def test_two_occurrences_have_two_ids(a: JobId, b: JobId, at: int, other: int, tag: str, text: str) -> None:
    if (a, at, tag) != (b, other, text):
        assert execution_id(a, at, tag) != execution_id(b, other, text)


def test_a_trigger_a_backfill_and_the_real_fire_of_one_time_differ() -> None:
    tags = ["", discriminator("trigger", "key"), discriminator("backfill", "key"), discriminator("trigger", "other")]
    assert len({execution_id(JOB, NOW_MS, tag) for tag in tags}) == 4


def test_a_discriminator_never_changes() -> None:
    assert discriminator("trigger", "key") == "trigger:ce7cccadc3a94cf5"


def test_new_jobs_sort_by_the_time_they_were_made() -> None:
    made = [new_job_id() for _ in range(1000)]
    assert made == sorted(made)
    assert len(set(made)) == 1000
    assert uuid.UUID(made[0]).version == 7


def test_a_job_stays_in_its_partition() -> None:
    assert partition_of(JOB) == 247


def test_jobs_are_spread_over_all_partitions() -> None:
    found = Counter(partition_of(new_job_id()) for _ in range(256 * 100))
    assert set(found) == set(range(PARTITIONS))
    assert max(found.values()) < 200


@pytest.mark.slow
@given(st.text())
def test_a_stable_fraction_is_from_0_to_below_1(text: str) -> None:
    assert 0 <= stable_fraction(text) < 1


def test_a_stable_fraction_never_changes() -> None:
    assert round(stable_fraction("spread/a"), 6) == 0.873686


def test_first_id_of_an_instant_separates_ids_by_time() -> None:
    job_id = new_job_id()
    earlier, later = execution_id(job_id, 1_699_999_999_999), execution_id(job_id, 1_700_000_000_000)
    assert earlier < first_id_at(1_700_000_000_000) < later
    assert is_id(first_id_at(1_700_000_000_000))


def test_first_id_of_an_instant_before_or_after_all_ids_is_a_bound_of_them() -> None:
    assert first_id_at(-1) == FIRST_ID
    assert execution_id(new_job_id(), 1_700_000_000_000) < first_id_at(2**60) <= LAST_ID
