"""The handlers of remote workers in one pool, as their takes name them."""

from collections.abc import Mapping

from noonday.model.errors import Conflict
from noonday.model.handler import Handler, Mode
from noonday.model.message import Dispatch
from noonday.ports.clock import Clock
from noonday.worker.remote import RemoteRuns

KNOWN_SEC = 60.0
"""Seconds after its last take for which a handler counts as present. Later dispatches of it are handed back."""
MAX_HANDLERS = 1_000
"""Maximum number of handlers of one pool, over all tenants."""


class RemoteHandlers:
    """Handlers by tenant and name. A dispatch of a tenant that has no remote worker here finds no handler, and is handed back."""

    def __init__(self, pool: str, runs: RemoteRuns, clock: Clock) -> None:
        self.pool = pool
        self.runs = runs
        self._clock = clock
        self._seen_at: dict[tuple[str, str], float] = {}
        """Time of the last take, by tenant and handler."""
        self._by_name: dict[tuple[str, str], Handler] = {}

    @property
    def infos(self) -> Mapping[tuple[str, str], Handler]:
        """The handlers to announce, by pool and name. The mapping grows."""
        return self._by_name

    def note(self, tenant: str, names: frozenset[str]) -> bool:
        """Note the handlers of a take. Returns whether some are to be announced. Raises Conflict if there are too many."""
        new = {name for name in names if (self.pool, name) not in self._by_name}
        if len(self._by_name) + len(new) > MAX_HANDLERS:
            raise Conflict(f"pool {self.pool!r} has {len(self._by_name)} remote handlers, {MAX_HANDLERS} at most")
        now = self._clock.monotonic()
        for name in names:
            self._seen_at[tenant, name] = now
        for name in new:
            self._by_name[self.pool, name] = _handler(self.pool, name)
        return bool(new)

    def find(self, dispatch: Dispatch) -> Handler | None:
        """Return the handler of a dispatch, if a remote worker of its tenant has named it lately."""
        seen_at = self._seen_at.get((dispatch.tenant, dispatch.handler))
        if seen_at is None or self._clock.monotonic() - seen_at > KNOWN_SEC:
            return None
        return self._by_name.get((dispatch.pool, dispatch.handler))

    def forget_absent(self) -> None:
        """Forget who named a handler long ago."""
        now = self._clock.monotonic()
        self._seen_at = {key: at for key, at in self._seen_at.items() if now - at <= KNOWN_SEC}


def _handler(pool: str, name: str) -> Handler:
    return Handler(name, pool, _never_called, Mode.REMOTE, decode=_as_it_is, encode=_as_it_is)


def _as_it_is(text: bytes) -> bytes:
    return text


def _never_called() -> None:
    raise AssertionError("a remote handler is called by its remote worker")
