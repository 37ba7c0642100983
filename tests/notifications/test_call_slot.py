"""Calls of a provider account keep its limits."""

from noonday.drivers.memory.throttles import MemoryThrottles
from noonday.model.notifications.sending import ProviderAccount, ProviderKind, ProviderLimits
from noonday.notifications.call_slot import CallSlot
from tests.support.clock import ManualClock
from tests.support.factories import TENANT


def slot(throttles: MemoryThrottles, clock: ManualClock, name: str, **limits: float) -> CallSlot:
    account = ProviderAccount(TENANT, "mail", ProviderKind.SMTP, limits=ProviderLimits(**limits))  # type: ignore[arg-type]
    return CallSlot(throttles, clock, account, name)


async def test_an_account_without_limits_is_called_at_once() -> None:
    assert await slot(MemoryThrottles(), ManualClock(), "n-1").enter() == 0


async def test_a_call_beyond_the_rate_returns_later() -> None:
    throttles, clock = MemoryThrottles(), ManualClock()
    assert await slot(throttles, clock, "n-1", rate_per_sec=0.1).enter() == 0
    assert await slot(throttles, clock, "n-2", rate_per_sec=0.1).enter() > 1_000


async def test_the_end_of_a_call_frees_its_slot() -> None:
    throttles, clock = MemoryThrottles(), ManualClock()
    first = slot(throttles, clock, "n-1", max_concurrency=1)
    assert await first.enter() == 0
    clock.advance(5)
    await first.leave()
    assert await slot(throttles, clock, "n-2", max_concurrency=1).enter() == 0
