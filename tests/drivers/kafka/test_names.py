import re

from hypothesis import given
from hypothesis import strategies as st

from noonday.drivers.kafka.names import Names

NAMES = Names("noonday")
POOLS = st.from_regex(re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,99}"), fullmatch=True)


def test_a_topic_says_its_pool_and_its_lane() -> None:
    assert NAMES.topics_of("batch-etl") == (
        "noonday.pool.batch-etl.HIGH",
        "noonday.pool.batch-etl.NORMAL",
        "noonday.pool.batch-etl.LOW",
    )


@given(pool=POOLS)
def test_every_pool_has_topics_that_lead_back_to_it(pool: str) -> None:
    for topic in NAMES.topics_of(pool):
        assert re.fullmatch(r"[A-Za-z0-9._-]{1,249}", topic)
        assert NAMES.find_pool(topic) == pool


@given(one=POOLS, other=POOLS)
def test_no_two_pools_share_a_topic_or_a_group(one: str, other: str) -> None:
    """Kafka does not distinguish "." and "_" in the names of its metrics, and refuses topics that differ only in these."""
    if one != other:
        topics = [{topic.replace(".", "_") for topic in NAMES.topics_of(pool)} for pool in (one, other)]
        assert not topics[0] & topics[1]
        assert NAMES.group_of(one) != NAMES.group_of(other)


def test_pools_that_differ_in_punctuation_alone_are_apart() -> None:
    pools = ["a.b", "a_b", "a:b", "a-b", "a-d", "a-cb", "a.-b", "a-.b"]
    topics = {topic.replace(".", "_") for pool in pools for topic in NAMES.topics_of(pool)}
    assert len(topics) == 3 * len(pools)


def test_other_topics_are_no_pools() -> None:
    for topic in (NAMES.log, NAMES.dead_letters, "noonday.pool.HIGH", "noonday.pool.x.MIDDLE", "other.pool.x.HIGH"):
        assert NAMES.find_pool(topic) is None
