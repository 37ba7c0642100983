"""Each tenant has its own connections, and idle ones are closed."""

import pytest

from noonday.webhooks.addresses import Networks
from noonday.webhooks.dialing import SystemResolver, open_session, tls_of
from noonday.webhooks.sessions import Sessions


def sessions(most: int) -> Sessions:
    resolver, tls = SystemResolver(), tls_of(None)
    return Sessions(lambda: open_session(Networks(), resolver, tls=tls), most)


@pytest.mark.slow
async def test_least_recently_used_sessions_are_closed() -> None:
    kept = sessions(most=2)
    first = kept.enter("a")
    await kept.leave("a")
    for tenant in ("b", "a", "c"):
        kept.enter(tenant)
        await kept.leave(tenant)
    assert len(kept) == 2
    assert kept.enter("a") is first
    assert not first.closed
    await kept.close()


async def test_session_in_use_is_never_closed() -> None:
    kept = sessions(most=1)
    busy = kept.enter("busy")
    for tenant in ("b", "c"):
        idle = kept.enter(tenant)
        await kept.leave(tenant)
        assert idle.closed
    assert not busy.closed
    await kept.leave("busy")
    assert len(kept) == 1
    await kept.close()
    assert busy.closed
