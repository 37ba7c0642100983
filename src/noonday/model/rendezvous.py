"""Weighted rendezvous hashing: all members compute the same owner of each slot. Also the weight that follows from a load.

Each member has a score for each slot, and the highest score wins. A score depends only on the slot, the member and its weight.
So a member that joins, leaves or changes its weight moves only slots that it gains or loses itself.
"""

from collections.abc import Mapping
from functools import lru_cache
from math import inf, log

import xxhash

from noonday.model.ids import InstanceId

LIGHTEST, HEAVIEST, WEIGHT_STEP = 0.5, 1.5, 0.25
_NO_WEIGHT = 1e-12
SETTLED_SEC = 30.0
"""Minimum time between two changes of a weight."""


def share_of(me: InstanceId, members: Mapping[InstanceId, float], slots: int) -> frozenset[int]:
    """Return the slots of 0, 1, ... `slots` - 1 that `me` owns. Empty if it is not a member.

    Members of weight 0 own nothing, unless all have weight 0.
    """
    if me not in members:
        return frozenset()
    weights = _weights(members)
    scores = [[weight * draw for draw in _draws(member, slots)] for member, weight in weights.items()]
    mine = list(weights).index(me)
    return frozenset(slot for slot, column in enumerate(zip(*scores, strict=True)) if column.index(max(column)) == mine)


def weight_of(load: float, former: float, since_sec: float) -> float:
    """Return the next weight of a member, given its load (0..1) and its former weight.

    The weight changes only by at least WEIGHT_STEP, and only if `since_sec` is at least SETTLED_SEC. `since_sec` is the time
    since the last change, of any member's weight where it is known, so that no slot moves twice within that time.
    """
    target = HEAVIEST - min(max(load, 0.0), 1.0) * (HEAVIEST - LIGHTEST)
    if since_sec >= SETTLED_SEC and abs(target - former) >= WEIGHT_STEP:
        return round(target / WEIGHT_STEP) * WEIGHT_STEP
    return former


def _weights(members: Mapping[InstanceId, float]) -> dict[InstanceId, float]:
    """Return valid weights, by name, so that all members break a tie alike. An invalid or tiny weight counts as 0."""
    sound = {member: members[member] if _NO_WEIGHT < members[member] < inf else 0.0 for member in sorted(members)}
    return sound if any(sound.values()) else dict.fromkeys(sound, 1.0)


@lru_cache(maxsize=256)
def _draws(member: InstanceId, slots: int) -> tuple[float, ...]:
    return tuple(_draw(slot, member) for slot in range(slots))


def _draw(slot: int, member: InstanceId) -> float:
    """Return the score at weight 1. With this distribution, a member wins in proportion to its weight."""
    digest = xxhash.xxh3_64_intdigest(f"|{slot}|{member}".encode())
    fraction = ((digest >> 12) + 0.5) / 2**52
    return -1.0 / log(fraction)
