"""Identities of a worker in its pools."""

import pytest

from noonday.model.errors import BusUnavailable
from noonday.model.message import Hello
from tests.worker.parts import POOL, Parts


async def test_joining_announces_the_handlers_and_gives_credit_to_the_pool() -> None:
    it = Parts()
    assert not it.membership.identity.has_joined
    await it.membership.join()
    (hello,) = await it.bus.entries()
    assert isinstance(hello, Hello)
    assert (hello.worker_id, hello.concurrency, len(hello.handlers)) == (it.membership.id, {POOL: 2}, 2)
    assert it.membership.identity.has_joined
    assert POOL in await it.bus.credit()


async def test_an_identity_whose_hello_is_refused_has_not_joined() -> None:
    it = Parts()
    it.bus.is_away = True
    with pytest.raises(BusUnavailable):
        await it.membership.join()
    assert not it.membership.identity.has_joined


async def test_a_new_identity_has_to_join_and_is_due_to_beat_at_once() -> None:
    it = Parts()
    await it.membership.join()
    former = it.membership.identity
    it.membership.change_identity()
    assert it.membership.identity is not former
    assert it.membership.former == [former]
    assert not it.membership.identity.has_joined
    assert it.membership.silence_sec(it.clock.monotonic()) == float("inf")


async def test_joining_again_leaves_under_the_former_identity() -> None:
    it = Parts()
    await it.membership.join()
    it.membership.change_identity()
    await it.membership.join()
    await it.membership.leave()
    assert await it.bus.credit() == {}


async def test_a_hello_and_a_heartbeat_end_the_silence() -> None:
    it = Parts()
    await it.membership.join()
    it.clock.advance(3)
    assert it.membership.silence_sec(it.clock.monotonic()) == 3
    it.membership.note_heartbeat(it.clock.monotonic())
    assert it.membership.silence_sec(it.clock.monotonic()) == 0
