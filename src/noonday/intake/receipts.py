"""Answers kept under an Idempotency-Key, so that a request that comes again is answered and not done again."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from noonday.crypto.envelope import context_of
from noonday.crypto.keyring import Keyring
from noonday.intake.idempotency import Answered, Idempotency
from noonday.model.caller import Caller
from noonday.model.errors import Conflict, IdempotencyInProgress, IdempotencyMismatch, InvalidInput, NotFound
from noonday.model.ids import TenantId
from noonday.ports.clock import Clock
from noonday.ports.jobs import Jobs, Receipt

T = TypeVar("T")


class Receipts:
    def __init__(self, jobs: Jobs, keyring: Keyring, clock: Clock) -> None:
        self._jobs = jobs
        self._keyring = keyring
        self._clock = clock
        self._in_progress: set[tuple[TenantId, str]] = set()

    @asynccontextmanager
    async def once(self, caller: Caller, idem: Idempotency | None) -> AsyncIterator[None]:
        """Answer a key that was answered before; refuse one that is being answered."""
        if idem is None:
            yield
            return
        name = (caller.tenant, idem.key)
        if name in self._in_progress:
            raise IdempotencyInProgress(f"a request with Idempotency-Key {idem.key!r} is being answered: try again")
        self._in_progress.add(name)
        try:
            kept = await self._jobs.find_receipt(caller.tenant, idem.key)
            if kept is not None and kept.fingerprint != idem.fingerprint:
                raise IdempotencyMismatch(f"Idempotency-Key {idem.key!r} was used with a different request")
            if kept is not None:
                raise Answered(kept.status, self._keyring.open(kept.body, context_of(caller.tenant, idem.key)))
            yield
        finally:
            self._in_progress.discard(name)

    @asynccontextmanager
    async def unless_answered(self, caller: Caller, idem: Idempotency | None) -> AsyncIterator[None]:
        """Refuse in here only what was not answered before under this key, whatever has become of it since. Raises Answered."""
        try:
            yield
        except (InvalidInput, NotFound, Conflict):
            async with self.once(caller, idem):
                raise

    def of(self, caller: Caller, idem: Idempotency, now_ms: int, answer: Any) -> Receipt:
        """To be stored with what is answered. The answer may have a payload or a secret in it, so it is sealed."""
        body = self._keyring.seal(idem.encode(answer), context_of(caller.tenant, idem.key))
        return Receipt(caller.tenant, idem.key, idem.fingerprint, now_ms, idem.status_of(answer), body)

    async def keep(self, caller: Caller, idem: Idempotency | None, view: T) -> T:
        """The answer of something that may be done twice without harm, after it was done."""
        if idem:
            await self._jobs.keep_receipt(self.of(caller, idem, self._clock.now_ms(), view))
        return view

    async def keep_refusal(self, caller: Caller, idem: Idempotency, status: int, body: bytes) -> None:
        """The answer to a request that was refused."""
        refused = Idempotency(idem.key, idem.fingerprint, lambda _: status, bytes)
        with suppress(Conflict):  # somebody else was answered under this key in the meantime
            await self._jobs.keep_receipt(self.of(caller, refused, self._clock.now_ms(), body))
