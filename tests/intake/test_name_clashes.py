"""Warnings about jobs that have the same name."""

from noonday.intake.name_clashes import NameClashes
from tests.intake.parts import ANN, STRANGER, parts_in_memory
from tests.support.factories import spec


async def test_job_with_a_taken_name_is_warned_about_the_first_one() -> None:
    async with parts_in_memory() as parts:
        first, second = [await parts.add(spec(name="nightly")) for _ in range(2)]
        names = await NameClashes(parts.store.query_store).among(ANN, ["nightly", "hourly", None])
        assert names.warnings("another", "nightly")[0].startswith(f"job {first.id} is also named 'nightly'")
        assert names.warnings(first.id, "nightly")[0].startswith(f"job {second.id} is also named")
        assert names.warnings("another", "hourly") == names.warnings("another", None) == ()


async def test_name_of_another_tenant_is_free() -> None:
    async with parts_in_memory() as parts:
        await parts.add(spec(name="nightly"))
        names = await NameClashes(parts.store.query_store).among(STRANGER, ["nightly"])
        assert names.warnings("another", "nightly") == ()
