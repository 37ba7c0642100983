"""Acks of dispatches that the log has."""

from tests.worker.parts import Parts


async def test_a_dispatch_is_acked_in_the_signals_and_then_on_the_bus() -> None:
    it = Parts()
    run = it.run()
    it.acks.add([run])
    assert run.is_acked
    await it.acks.send()
    assert it.signals.acked == [(run.dispatch.execution_id, run.dispatch.number)]
    assert it.bus.done == [run.dispatch]


async def test_bus_redelivers_dispatches_that_the_signals_could_not_ack() -> None:
    it = Parts()
    run = it.run()
    it.acks.add([run])
    it.signals.is_away = True
    await it.acks.send()
    assert it.bus.done == []
    assert "claims and revocations" in it.connectivity.reasons_not_ready()[-1]
    it.signals.is_away = False
    await it.acks.send_again()
    assert it.bus.done == [run.dispatch]


async def test_parked_duplicates_of_an_acked_dispatch_are_dropped() -> None:
    it = Parts()
    run = it.run()
    it.parked.add([run.dispatch])
    it.acks.add([run])
    await it.acks.send_after_release()
    assert len(it.parked) == 0


async def test_an_ack_is_sent_once() -> None:
    it = Parts()
    it.acks.add([it.run()])
    await it.acks.send()
    await it.acks.send_again()
    assert len(it.signals.acked) == 1
