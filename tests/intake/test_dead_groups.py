"""Dead letters grouped by their error."""

from collections.abc import AsyncIterator

import pytest

from noonday.intake import dead_groups
from noonday.intake.dead_groups import DeadGroups
from noonday.model.filters import DeadFilterQuery
from noonday.model.job import Target
from noonday.ports.offload import InlineOffload
from tests.intake.parts import ANN, STRANGER, Parts, parts_in_memory
from tests.support.factories import spec

ALL = DeadFilterQuery()


@pytest.fixture
async def parts() -> AsyncIterator[Parts]:
    async with parts_in_memory() as parts:
        yield parts


def groups_of(parts: Parts) -> DeadGroups:
    return DeadGroups(parts.store.selection, InlineOffload())


async def test_dead_letters_are_grouped_by_error_and_the_largest_group_is_first(parts: Parts) -> None:
    full = await parts.add(spec(target=Target("disk", "write")))
    await parts.bury(full, message="disk full")
    for seconds in (3, 47):
        last = await parts.bury(await parts.add(spec()), message=f"timeout after {seconds} s")
    found = await groups_of(parts).list_groups(ANN, ALL)
    assert [(one.message, one.count, one.jobs) for one in found.groups] == [
        ("OSError: timeout after # s", 2, 2),
        ("OSError: disk full", 1, 1),
    ]
    assert (found.is_least, found.groups[0].is_least, found.groups[0].per_hour) == (False, False, 2.0)
    assert found.groups[0].sample == last.execution_id or found.groups[0].count == 2
    (only,) = (await groups_of(parts).list_groups(ANN, DeadFilterQuery(pool="disk"))).groups
    assert only.message == "OSError: disk full"
    assert (await groups_of(parts).list_groups(STRANGER, ALL)).groups == ()


async def test_groups_are_bounded(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    for message in ("one", "two", "three"):
        await parts.bury(await parts.add(spec()), message=message)
    monkeypatch.setattr(dead_groups, "MOST_GROUPS", 2)
    found = await groups_of(parts).list_groups(ANN, ALL)
    assert (len(found.groups), found.is_least) == (2, True)
    monkeypatch.setattr(dead_groups, "SCAN_LIMIT", 1)
    found = await groups_of(parts).list_groups(ANN, ALL)
    assert (len(found.groups), found.is_least, found.groups[0].is_least) == (1, True, True)
