"""The servers that a worker reaches, and when it may be judged lost."""

from noonday.model.message import Bye
from noonday.worker.connectivity import MAX_SIGNALS_OUTAGE_SEC
from noonday.worker.outbox import Item
from tests.worker.parts import Parts

FROZEN_SEC, BEAT_SEC = 20.0, 10.0


async def parts() -> Parts:
    made = Parts(frozen_after_sec=FROZEN_SEC, beat_sec=BEAT_SEC)
    await made.open()
    return made


async def cut_bus(it: Parts) -> None:
    it.bus.is_away = True
    it.outbox.add([Item(0, Bye(it.membership.id, 0))])
    await it.outbox.send()


async def test_a_worker_whose_signals_are_away_takes_for_two_seconds_more() -> None:
    it = await parts()
    it.connectivity.note_signals_unavailable()
    it.clock.advance(MAX_SIGNALS_OUTAGE_SEC)
    assert it.connectivity.may_take(it.clock.monotonic())
    it.clock.advance(0.1)
    assert not it.connectivity.may_take(it.clock.monotonic())


async def test_a_worker_that_cannot_send_heartbeats_takes_nothing() -> None:
    it = await parts()
    await cut_bus(it)
    it.clock.advance(BEAT_SEC + 0.1)
    assert not it.connectivity.may_take(it.clock.monotonic())


async def test_the_start_of_an_outage_of_the_signals_is_kept() -> None:
    it = await parts()
    it.connectivity.note_signals_unavailable()
    it.clock.advance(5)
    it.connectivity.note_signals_unavailable()
    assert it.connectivity.reasons_not_ready() == ["claims and revocations have been unavailable for 5 s"]


async def test_a_probe_finds_out_whether_the_signals_are_available_again() -> None:
    it = await parts()
    it.connectivity.note_signals_unavailable()
    it.signals.is_away = True
    await it.connectivity.probe_signals()
    assert it.connectivity.reasons_not_ready()
    it.signals.is_away = False
    await it.connectivity.probe_signals()
    assert it.connectivity.reasons_not_ready() == []


async def test_a_stalled_control_loop_may_be_judged_lost() -> None:
    it = await parts()
    it.clock.advance(FROZEN_SEC)
    assert not it.connectivity.may_be_judged_lost(it.clock.monotonic())
    it.clock.advance(0.1)
    assert it.connectivity.may_be_judged_lost(it.clock.monotonic())


async def test_a_worker_without_bus_and_signals_may_be_judged_lost() -> None:
    it = await parts()
    await cut_bus(it)
    it.connectivity.note_signals_unavailable()
    it.clock.advance(FROZEN_SEC + 0.1)
    it.connectivity.note_round()
    assert it.connectivity.may_be_judged_lost(it.clock.monotonic())


async def test_a_worker_that_reaches_the_signals_is_not_cut_off() -> None:
    it = await parts()
    await cut_bus(it)
    it.clock.advance(FROZEN_SEC + 0.1)
    it.connectivity.note_round()
    assert not it.connectivity.may_be_judged_lost(it.clock.monotonic())


async def test_an_identity_that_has_not_joined_cannot_be_judged_lost() -> None:
    it = Parts(frozen_after_sec=FROZEN_SEC)
    it.clock.advance(FROZEN_SEC + 1)
    assert not it.connectivity.may_be_judged_lost(it.clock.monotonic())
    assert it.connectivity.reasons_not_ready() == ["the worker has not joined its pools"]
