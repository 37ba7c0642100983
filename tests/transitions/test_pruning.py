"""Progress of pruning where tenants have different retention times."""

from hypothesis import given, settings
from hypothesis import strategies as st

from noonday.model.ids import FIRST_ID, TenantId
from noonday.transitions.pruning import MAX_TENANTS, ROUND_MS, PruneWalk
from tests.support.factories import NOW_MS


@settings(max_examples=50)
@given(st.integers(0, 3 * MAX_TENANTS))
def test_every_tenant_is_visited_in_turn(count: int) -> None:
    """Each step visits a limited number of them and continues behind the last."""
    tenants = [TenantId(f"t{number:03}") for number in range(count)]
    walk, seen = PruneWalk(FIRST_ID), []
    for _ in range(-(-len(tenants) // MAX_TENANTS)):
        for tenant in walk.tenants_from_mark(tenants):
            seen.append(tenant)
            walk.page_done([], limit=10)
    assert seen[:count] == tenants


def test_tenant_that_is_not_finished_is_visited_first_in_the_next_step() -> None:
    walk, tenants = PruneWalk(FIRST_ID), [TenantId("a"), TenantId("b")]
    next(walk.tenants_from_mark(tenants))
    walk.page_done(["job-1", "job-2"], limit=2)
    assert next(walk.tenants_from_mark(tenants)) == "a"
    assert walk.job == "job-2"


def test_next_tenant_is_scanned_from_its_first_job() -> None:
    walk, tenants = PruneWalk(FIRST_ID), [TenantId("a"), TenantId("b")]
    next(walk.tenants_from_mark(tenants))
    walk.page_done(["job-1", "job-2"], limit=2)
    walk.page_done([], limit=2)
    assert next(walk.tenants_from_mark(tenants)) == "b"
    assert walk.job == FIRST_ID


def test_walk_over_executions_starts_again_an_hour_after_it_began() -> None:
    """A row that it has passed becomes old enough only if its execution ended late."""
    walk = PruneWalk(FIRST_ID)
    walk.move("ended", "execution-5", NOW_MS)
    walk.move("ended", None, NOW_MS + ROUND_MS - 1)
    assert walk.mark_of("ended") == "execution-5"
    walk.move("ended", None, NOW_MS + ROUND_MS)
    assert walk.mark_of("ended") == FIRST_ID
