"""What topics and groups are called."""

import re

from noonday.model.firing import LANES


class Names:
    """All names of an installation, which begin with its prefix."""

    def __init__(self, prefix: str) -> None:
        self.log = f"{prefix}.events"
        self.dead_letters = f"{prefix}.dead-letters"
        self._prefix = prefix
        self._pool_prefix = f"{prefix}.pool."
        self._pools: dict[str, tuple[str, ...]] = {}

    def topics_of(self, pool: str) -> tuple[str, ...]:
        """One for each lane, in the order of LANES."""
        known = self._pools.get(pool)
        if known is None:
            known = tuple(f"{self._pool_prefix}{_escape(pool)}.{lane}" for lane in LANES)
            self._pools[pool] = known
        return known

    def group_of(self, pool: str) -> str:
        """The group whose members are the workers of a pool."""
        return f"{self._prefix}.{_escape(pool)}"

    def find_pool(self, topic: str) -> str | None:
        """The pool that a topic belongs to, if it is a pool's."""
        if not topic.startswith(self._pool_prefix):
            return None
        escaped, _, lane = topic.removeprefix(self._pool_prefix).rpartition(".")
        return _unescape(escaped) if escaped and lane in LANES else None


_CODES = {"-": "--", ":": "-c", ".": "-d"}
_MEANT = {code: character for character, code in _CODES.items()}


def _escape(pool: str) -> str:
    """No pool's name begins with a dash: so a name that does is an escaped one."""
    # A topic's name must not have a colon, nor differ from another one's in "." and "_" alone.
    if ":" not in pool and "." not in pool:
        return pool
    return "-" + re.sub(r"[-:.]", lambda found: _CODES[found[0]], pool)


def _unescape(name: str) -> str:
    if not name.startswith("-"):
        return name
    return re.sub(r"-[-cd]", lambda found: _MEANT[found[0]], name[1:])
