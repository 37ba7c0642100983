"""Catalogue of pools and handlers, and the check of payloads against their schemas."""

from itertools import islice
from typing import Any

import jsonschema_rs
import msgspec

from noonday.model.errors import FLAWS_OF_JOB, Flaw, InvalidInput, nearest
from noonday.model.job import JobSpec
from noonday.model.message import HandlerInfo
from noonday.model.pool import BUILT_IN_POOLS
from noonday.ports.clock import Clock
from noonday.ports.settings import SettingsStore

_FRESH_SEC = 1.0
MAX_TEXT_CHARS = 500
MAX_COMPARED = 1_000
"""Maximum number of handlers of a pool that an unknown name is compared with."""


class Catalogue:
    """A copy of the registry, at most a second old. A pool that it lacks is looked up in the store at once."""

    def __init__(self, settings_store: SettingsStore, clock: Clock) -> None:
        self._settings_store = settings_store
        self._clock = clock
        self._pools: frozenset[str] = frozenset()
        self._handlers: dict[tuple[str, str], tuple[HandlerInfo, Any] | None] = {}
        self._names: dict[str, list[str]] = {}
        """Names of the handlers of a pool."""
        self._until = 0.0

    async def check(self, spec: JobSpec) -> tuple[str, ...]:
        """Check the pool and the payload of a job. Returns warnings.

        Raises InvalidInput for an unknown pool, and for a payload that the handler's schema does not allow.
        """
        if self.is_simple(spec):
            return ()
        target = spec.target
        known = await self.pools(target.pool)
        if target.pool not in known:
            detail = f"no pool {target.pool}: start a worker for it, or create it: `noonday pool set {target.pool}`"
            # Users cannot create jobs in built-in pools, so these are not suggested.
            usable = [pool for pool in known if pool not in BUILT_IN_POOLS]
            raise InvalidInput.of(
                "/target/pool", detail, target.pool, allowed=usable, nearest=nearest(target.pool, usable)
            )
        found = await self._handler(target.pool, target.handler)
        if found is None:
            return (await self._unknown_handler(target.pool, target.handler),)
        _check_payload(spec.payload, found[1], target.handler)
        return ()

    async def _unknown_handler(self, pool: str, name: str) -> str:
        """Return the warning of a job whose handler no worker has registered, with the registered name that is most like it."""
        if pool not in self._names:
            self._names[pool] = await self._settings_store.handler_names(pool, MAX_COMPARED)
        guess = nearest(name, self._names[pool])
        hint = f"; did you mean {guess!r}?" if guess else ""
        return f"no worker has registered handler {name!r} in pool {pool!r} yet: executions will wait{hint}"

    async def pools(self, required: str) -> list[str]:
        """Return the names of all pools. They are read again if `required` is not among them."""
        if self._clock.monotonic() >= self._until:
            self.forget()
        if required not in self._pools:
            await self._read_pools()
        return sorted(self._pools)

    def is_simple(self, spec: JobSpec) -> bool:
        """Return whether the copy shows that a job's handler exists and accepts any payload, so that no check is needed."""
        found = self._handlers.get((spec.target.pool, spec.target.handler))
        return found is not None and found[1] is None and self._clock.monotonic() < self._until

    def forget(self) -> None:
        """Drop the copy, so that the next call reads the store."""
        self._pools = frozenset()
        self._handlers = {}
        self._names = {}

    async def _read_pools(self) -> None:
        self._pools = frozenset(await self._settings_store.pool_names())
        self._until = self._clock.monotonic() + _FRESH_SEC

    async def _handler(self, pool: str, name: str) -> tuple[HandlerInfo, Any] | None:
        key = (pool, name)
        if key not in self._handlers:
            info = await self._settings_store.find_handler(pool, name)
            self._handlers[key] = (info, _validator(info)) if info else None
        return self._handlers[key]


def _validator(info: HandlerInfo) -> Any:
    return jsonschema_rs.validator_for(info.schema) if info.schema else None


def _check_payload(payload: Any, validator: Any, handler: str) -> None:
    if validator is None or validator.is_valid(payload):
        return
    errors = validator.iter_errors(payload)
    flaws = [_flaw(error) for error in islice(errors, FLAWS_OF_JOB)]
    left_out = sum(1 for _ in errors)
    more = {"leftOut": left_out} if left_out else {}
    raise InvalidInput(
        f"the payload does not match the schema of handler {handler!r}: {flaws[0].detail}", flaws, **more
    )


def _flaw(error: Any) -> Flaw:
    pointer = "/payload" + "".join(f"/{step}" for step in error.instance_path)
    # The validator's message repeats the value, which may be large.
    return Flaw(pointer[:MAX_TEXT_CHARS], error.message[:MAX_TEXT_CHARS], msgspec.to_builtins(error.instance))
