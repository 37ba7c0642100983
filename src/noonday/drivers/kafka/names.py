"""Names of topics and consumer groups."""

import re

from noonday.model.firing import LANES


class Names:
    """All names of an installation. They begin with its prefix."""

    def __init__(self, prefix: str) -> None:
        self.log = f"{prefix}.events"
        self.dead_letters = f"{prefix}.dead-letters"
        self._prefix = prefix
        self._pool_prefix = f"{prefix}.pool."
        self._pools: dict[str, tuple[str, ...]] = {}

    def topics_of(self, pool: str) -> tuple[str, ...]:
        """Return the topics of a pool: one for each lane, in the order of LANES."""
        known = self._pools.get(pool)
        if known is None:
            known = tuple(f"{self._pool_prefix}{_escape(pool)}.{lane}" for lane in LANES)
            self._pools[pool] = known
        return known

    def group_of(self, pool: str) -> str:
        """Return the consumer group of the workers of a pool."""
        return f"{self._prefix}.{_escape(pool)}"

    def find_pool(self, topic: str) -> str | None:
        """Return the pool of a topic, or None if the topic is not a pool's."""
        if not topic.startswith(self._pool_prefix):
            return None
        escaped, _, lane = topic.removeprefix(self._pool_prefix).rpartition(".")
        return _unescape(escaped) if escaped and lane in LANES else None


_CODES = {"-": "--", ":": "-c", ".": "-d"}
_CHARACTERS = {code: character for character, code in _CODES.items()}


def _escape(pool: str) -> str:
    """Escape a pool's name for a topic. An escaped name begins with a dash, which no pool's name does."""
    # A topic's name must not contain a colon, nor differ from another one's in "." and "_" alone.
    if ":" not in pool and "." not in pool:
        return pool
    return "-" + re.sub(r"[-:.]", lambda found: _CODES[found[0]], pool)


def _unescape(name: str) -> str:
    if not name.startswith("-"):
        return name
    return re.sub(r"-[-cd]", lambda found: _CHARACTERS[found[0]], name[1:])
