"""Receipts: responses stored under an Idempotency-Key, so that a repeated request is answered and not executed again."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from noonday.crypto.envelope import context_of
from noonday.crypto.keyring import Keyring
from noonday.intake.idempotency import AlreadyAnswered, Idempotency
from noonday.model.caller import Caller
from noonday.model.errors import Conflict, IdempotencyInProgress, IdempotencyMismatch, InvalidInput, NotFound
from noonday.model.ids import TenantId
from noonday.model.receipt import Receipt
from noonday.ports.clock import Clock
from noonday.ports.jobs import Jobs

T = TypeVar("T")


class Receipts:
    """Stores and finds receipts. Refuses a key whose first request is still in progress in this process."""

    def __init__(self, jobs: Jobs, keyring: Keyring, clock: Clock) -> None:
        self._jobs = jobs
        self._keyring = keyring
        self._clock = clock
        self._in_progress: set[tuple[TenantId, str]] = set()

    @asynccontextmanager
    async def once(self, caller: Caller, idem: Idempotency | None) -> AsyncIterator[None]:
        """Run a request once per key.

        Raises Answered if the key has a receipt, IdempotencyMismatch if it was used with another request, and
        IdempotencyInProgress while the first request runs.
        """
        if idem is None:
            yield
            return
        name = (caller.tenant, idem.key)
        if name in self._in_progress:
            raise IdempotencyInProgress(f"a request with Idempotency-Key {idem.key!r} is in progress: retry later")
        self._in_progress.add(name)
        try:
            receipt = await self._jobs.find_receipt(caller.tenant, idem.key)
            if receipt is not None and receipt.fingerprint != idem.fingerprint:
                raise IdempotencyMismatch(
                    f"Idempotency-Key {idem.key!r} was used with a different request: use a new key"
                )
            if receipt is not None:
                raise AlreadyAnswered(
                    receipt.status, self._keyring.open(receipt.body, context_of(caller.tenant, idem.key))
                )
            yield
        finally:
            self._in_progress.discard(name)

    @asynccontextmanager
    async def unless_answered(self, caller: Caller, idem: Idempotency | None) -> AsyncIterator[None]:
        """Raise Answered instead of a refusal if the key has a receipt: a request that succeeded may be invalid by now."""
        try:
            yield
        except (InvalidInput, NotFound, Conflict):
            async with self.once(caller, idem):
                raise

    def of(self, caller: Caller, idem: Idempotency, now_ms: int, answer: Any) -> Receipt:
        """Build the receipt of a response. It is encrypted, because a response may contain a payload or a secret."""
        body = self._keyring.seal(idem.encode(answer), context_of(caller.tenant, idem.key))
        return Receipt(caller.tenant, idem.key, idem.fingerprint, now_ms, idem.status_of(answer), body)

    async def keep(self, caller: Caller, idem: Idempotency | None, view: T) -> T:
        """Store the response of a request that may be executed twice without harm, after its execution. Returns the response."""
        if idem:
            await self._jobs.keep_receipt(self.of(caller, idem, self._clock.now_ms(), view))
        return view

    async def keep_refusal(self, caller: Caller, idem: Idempotency, status: int, body: bytes) -> None:
        """Store the error response of a request that was refused."""
        refused = Idempotency(idem.key, idem.fingerprint, lambda _: status, bytes)
        with suppress(Conflict):  # another request got a response under this key in the meantime
            await self._jobs.keep_receipt(self.of(caller, refused, self._clock.now_ms(), body))
