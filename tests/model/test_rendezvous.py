import time
from collections.abc import Mapping
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonday.model.ids import PARTITIONS, InstanceId
from noonday.model.rendezvous import HEAVIEST, LIGHTEST, SETTLED_SEC, WEIGHT_STEP, share_of, weight_of

SLOTS = 64
Members = Mapping[InstanceId, float]

names = st.text(min_size=1, max_size=12).map(InstanceId)
weights = st.floats(0.5, 1.5) | st.sampled_from([0.0, 5e-324, 1e-9, 1e9])
groups = st.dictionaries(names, weights, min_size=1, max_size=9)
loads = st.floats(0.0, 1.0)


def owners(members: Members, slots: int = SLOTS) -> list[InstanceId]:
    owner = {slot: member for member in members for slot in share_of(member, members, slots)}
    return [owner[slot] for slot in range(slots)]


def fleet(size: int, weight: float = 1.0) -> dict[InstanceId, float]:
    return {InstanceId(f"i-{number}"): weight for number in range(size)}


@pytest.mark.slow
@given(groups)
def test_every_slot_has_exactly_one_owner(members: Members) -> None:
    shares = [share_of(member, members, SLOTS) for member in members]
    assert sorted(slot for share in shares for slot in share) == list(range(SLOTS))


@pytest.mark.slow
@given(groups, st.randoms())
def test_owners_do_not_depend_on_the_order_of_members(members: Members, random: Random) -> None:
    order = list(members)
    random.shuffle(order)
    shuffled = {member: members[member] for member in order}
    assert owners(members) == owners(shuffled)
    assert all(share_of(member, members, SLOTS) == share_of(member, shuffled, SLOTS) for member in members)


@pytest.mark.slow
@given(groups, names, weights)
def test_new_member_moves_only_the_slots_it_gains(members: Members, newcomer: InstanceId, weight: float) -> None:
    before = {member: weight for member, weight in members.items() if member != newcomer}
    if before:
        after = owners({**before, newcomer: weight})
        assert all(now in (then, newcomer) for then, now in zip(owners(before), after, strict=True))


@pytest.mark.slow
@given(groups, st.data(), weights)
def test_another_weight_moves_slots_only_to_or_from_that_member(
    members: Members, data: st.DataObject, weight: float
) -> None:
    member = data.draw(st.sampled_from(sorted(members)))
    moved = {
        change
        for change in zip(owners(members), owners({**members, member: weight}), strict=True)
        if len(set(change)) == 2
    }
    if weight >= members[member]:
        assert all(now == member for _, now in moved)
    else:
        assert all(then == member for then, _ in moved)


@pytest.mark.parametrize("size", [2, 3, 8, 16])
def test_one_more_of_n_takes_about_its_share(size: int) -> None:
    slots = 4096
    newcomer = InstanceId("the-new-one")
    gained = share_of(newcomer, {**fleet(size - 1), newcomer: 1.0}, slots)
    assert len(gained) == pytest.approx(slots / size, rel=0.25)


@pytest.mark.parametrize("size", [3, 8])
def test_slots_of_a_member_that_left_are_spread_over_all_others(size: int) -> None:
    slots = 4096
    gone = InstanceId("i-0")
    rest = {member: 1.0 for member in fleet(size) if member != gone}
    left_behind = share_of(gone, fleet(size), slots)
    for member in rest:
        gained = share_of(member, rest, slots) - share_of(member, fleet(size), slots)
        assert gained <= left_behind
        assert len(gained) == pytest.approx(len(left_behind) / len(rest), rel=0.35)


def test_slots_are_shared_in_proportion_to_the_weights() -> None:
    slots = 8192
    members = {InstanceId("light"): 0.5, InstanceId("even"): 1.0, InstanceId("heavy"): 1.5}
    for member, weight in members.items():
        assert len(share_of(member, members, slots)) == pytest.approx(slots * weight / 3, rel=0.1)


def test_only_member_owns_all_slots() -> None:
    me = InstanceId("me")
    for weight in (0.0, 5e-324, 1.0):
        assert share_of(me, {me: weight}, PARTITIONS) == frozenset(range(PARTITIONS))


@pytest.mark.parametrize("nothing", [0.0, -1.0, float("nan"), float("inf")])
def test_member_without_weight_owns_nothing_while_another_has_one(nothing: float) -> None:
    members = {InstanceId("idle"): nothing, InstanceId("a"): 1e-6, InstanceId("b"): 1e-6}
    assert share_of(InstanceId("idle"), members, PARTITIONS) == frozenset()


def test_members_without_weights_are_equal() -> None:
    assert owners(fleet(4, 0.0)) == owners(fleet(4, 1.0))


def test_instance_that_is_no_member_owns_nothing() -> None:
    assert share_of(InstanceId("stranger"), fleet(3), PARTITIONS) == frozenset()
    assert share_of(InstanceId("stranger"), {}, PARTITIONS) == frozenset()


def test_the_distribution_is_part_of_the_protocol_and_never_changes() -> None:
    """Members of two versions must agree during an upgrade."""
    assert "".join(owner[-1] for owner in owners(fleet(4), 32)) == "02011330232311213112230113013012"


def test_a_share_is_computed_fast() -> None:
    def seconds() -> float:
        began = time.perf_counter()
        share_of(InstanceId("i-0"), fleet(16), PARTITIONS)
        return time.perf_counter() - began

    assert min(seconds() for _ in range(10)) < 0.005  # 0.4 ms on an idle machine


@pytest.mark.slow
@given(st.lists(st.tuples(loads, st.floats(0.0, 20.0)), max_size=60))
def test_a_weight_stays_for_its_time_and_on_its_grid(rounds: list[tuple[float, float]]) -> None:
    weight, since_sec = 1.0, 0.0
    for load, passed_sec in rounds:
        since_sec += passed_sec
        weight_now = weight_of(load, weight, since_sec)
        assert LIGHTEST <= weight_now <= HEAVIEST
        assert weight_now % WEIGHT_STEP == 0
        if weight_now != weight:
            assert since_sec >= SETTLED_SEC
            weight, since_sec = weight_now, 0.0


@pytest.mark.slow
@given(st.sampled_from([0.5, 0.75, 1.0, 1.25, 1.5]), st.floats(0.0, 0.76), st.lists(st.floats(0.0, 0.24), max_size=100))
def test_a_noisy_load_does_not_make_the_weight_flap(former: float, base: float, noise: list[float]) -> None:
    weights = [former]
    for more in noise:
        weights.append(weight_of(base + more, weights[-1], SETTLED_SEC))
    changes = sum(then != now for then, now in pairwise(weights))
    assert changes <= 2


@pytest.mark.parametrize(
    ("load", "weight"), [(0.0, 1.5), (0.25, 1.25), (0.5, 1.0), (1.0, 0.5), (7.0, 0.5), (-1.0, 1.5)]
)
def test_the_busier_the_lighter(load: float, weight: float) -> None:
    far = 1.5 if weight <= 1.0 else 0.5
    assert weight_of(load, far, SETTLED_SEC) == weight


def test_less_than_a_step_changes_nothing() -> None:
    assert weight_of(0.74, 1.0, 1000.0) == 1.0
    assert weight_of(0.26, 1.0, 1000.0) == 1.0
    assert weight_of(float("nan"), 1.0, 1000.0) == 1.0


def test_a_recent_change_is_left_alone() -> None:
    assert weight_of(1.0, 1.5, SETTLED_SEC - 0.001) == 1.5
    assert weight_of(1.0, 1.5, SETTLED_SEC) == 0.5
