"""Who owns what, computed by everybody alike: weighted rendezvous hashing, and the weight that a load asks for.

Each member has a score for each slot, and the highest wins. A score depends on the slot, the member and its weight alone,
so whoever comes, goes or changes its weight moves only slots that it gains or loses itself.
"""

from collections.abc import Mapping
from functools import lru_cache
from math import inf, log

import xxhash

from noonday.model.errors import InvalidInput
from noonday.model.ids import InstanceId

LIGHTEST, HEAVIEST, WEIGHT_STEP = 0.5, 1.5, 0.25
_NO_WEIGHT = 1e-12
SETTLED_SEC = 30.0
"""How long a weight stays as it is, at least."""


def owner_of(slot: int, members: Mapping[InstanceId, float], salt: str = "") -> InstanceId:
    """The one member that owns this slot. Those of weight 0 own nothing, unless all have it."""
    if not members:
        raise InvalidInput("a slot without members has no owner")
    weights = _weights(members)
    return max(weights, key=lambda member: weights[member] * _draw(slot, member, salt))


def share_of(me: InstanceId, members: Mapping[InstanceId, float], slots: int, salt: str = "") -> frozenset[int]:
    """Which of the slots 0, 1, ... are mine; none, if I am not a member."""
    if me not in members:
        return frozenset()
    weights = _weights(members)
    scores = [[weight * draw for draw in _draws(member, slots, salt)] for member, weight in weights.items()]
    mine = list(weights).index(me)
    return frozenset(slot for slot, column in enumerate(zip(*scores, strict=True)) if column.index(max(column)) == mine)


def weight_of(load: float, former: float, since_sec: float) -> float:
    """The weight to say next, given how busy this member is (0..1) and what weight it said before.

    It changes only when the load asks for at least a step more or less, and only when `since_sec` is long enough ago: the
    time since the last change, of anybody's weight where it is known, so that no slot moves twice within that time.
    """
    asked = HEAVIEST - min(max(load, 0.0), 1.0) * (HEAVIEST - LIGHTEST)
    if since_sec >= SETTLED_SEC and abs(asked - former) >= WEIGHT_STEP:
        return round(asked / WEIGHT_STEP) * WEIGHT_STEP
    return former


def _weights(members: Mapping[InstanceId, float]) -> dict[InstanceId, float]:
    """In the order of names, so that a tie is broken alike everywhere. What is no weight, or next to none, counts as none."""
    sound = {member: members[member] if _NO_WEIGHT < members[member] < inf else 0.0 for member in sorted(members)}
    return sound if any(sound.values()) else dict.fromkeys(sound, 1.0)


@lru_cache(maxsize=256)
def _draws(member: InstanceId, slots: int, salt: str) -> tuple[float, ...]:
    return tuple(_draw(slot, member, salt) for slot in range(slots))


def _draw(slot: int, member: InstanceId, salt: str) -> float:
    """The score at weight 1. Scores of this distribution make a member win in proportion to its weight."""
    digest = xxhash.xxh3_64_intdigest(f"{salt}|{slot}|{member}".encode())
    fraction = ((digest >> 12) + 0.5) / 2**52
    return -1.0 / log(fraction)
