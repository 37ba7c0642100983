"""Medians, ratios, the number of jobs in a repetition, and the order of repetitions."""

import msgspec
import pytest
from bench.peers.catalog import NOONDAY, Peer, chosen, load_peers
from bench.peers.plan import plan
from bench.peers.spread import Spread, ratios, spread
from bench.peers.works import WORKS, chosen_works, jobs_for_a_round

from bench import BenchFailed


def test_a_spread_is_the_median_with_the_least_and_the_most() -> None:
    assert spread([3, 1, None, 10]) == Spread(3, 1, 10, 3)
    assert spread([None]) is None


def test_ratios_are_those_of_neighbours() -> None:
    assert ratios([2.0, 9.0, None, 5.0], [1.0, 3.0, 7.0, 0.0]) == Spread(2.5, 2, 3, 2)
    assert ratios([1.0], [None]) is None


@pytest.mark.parametrize(
    ("create_per_s", "done_per_s", "expected"),
    [
        (10_000, 10_000, 100_000),  # 150,000 would fit, and the work has no more
        (1_000, 500, 10_000),
        (300, 221, 3_800),
        (20, 5, 120),
        (1, 1, 100),
    ],
)
def test_a_repetition_has_as_many_jobs_as_half_a_minute_has_room_for(
    create_per_s: float, done_per_s: float, expected: int
) -> None:
    assert jobs_for_a_round(create_per_s, done_per_s, 100_000) == expected


def test_a_work_that_only_creates_counts_creating_alone() -> None:
    assert jobs_for_a_round(1_000, 0, 100_000) == 30_000


def test_no_repetition_has_more_jobs_than_its_work() -> None:
    assert jobs_for_a_round(1, 1, 20) == 20


def test_peers_and_noonday_are_measured_in_turn() -> None:
    a, b, embedded, cluster = (peer(name) for name in ("a", "b", *NOONDAY))
    turns = [
        (each.round, each.work.name, *(member.name for member in each.members()))
        for each in plan([a, b], [embedded, cluster], [WORKS["burst"], WORKS["idle"]], 2)
    ]
    assert turns == [
        (0, "burst", "a", *NOONDAY),
        (0, "burst", "b", *NOONDAY),
        (0, "idle", "a", *NOONDAY),
        (0, "idle", "b", *NOONDAY),
        (1, "burst", *NOONDAY, "a"),
        (1, "burst", *NOONDAY, "b"),
        (1, "idle", *NOONDAY, "a"),
        (1, "idle", *NOONDAY, "b"),
    ]


def test_works_that_a_peer_does_not_support_are_left_out() -> None:
    some = msgspec.structs.replace(peer("a"), ways=("single",), unsupported={"crons": "it has none"})
    works = [WORKS[name] for name in ("schedule-single", "schedule-bulk", "crons", "burst")]
    assert [each.work.name for each in plan([some], [], works, 1)] == ["schedule-single", "burst"]


def test_works_are_named_one_by_one_or_by_the_beginning_of_their_names() -> None:
    assert [work.name for work in chosen_works(["kill", "burst"])] == ["burst", "kill-worker", "kill-scheduler"]
    assert chosen_works([]) == list(WORKS.values())
    with pytest.raises(BenchFailed, match="there is no work 'sleep': choose from schedule-single"):
        chosen_works(["sleep"])


def test_unknown_peers_are_refused() -> None:
    with pytest.raises(BenchFailed, match="there is no peer 'cron': choose from "):
        chosen(["cron"], load_peers())


def test_every_peer_is_pinned_to_the_version_that_it_states() -> None:
    manifests = {"go": "go.mod", "node": "package.json", "python": "requirements.txt", "java": "pom.xml"}
    for each in load_peers().values():
        if not each.is_noonday:
            assert each.version in (each.directory / manifests[each.language]).read_text(), each.name
        assert set(each.unsupported) <= set(WORKS)
        assert each.settings


def peer(name: str) -> Peer:
    return Peer(name=name, title=name, version="1", language="python", store="postgres", settings="default")
