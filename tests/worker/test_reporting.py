"""Reports of ended runs, from the hosts to the acks."""

import asyncio

from noonday.model.execution import Outcome
from noonday.model.message import Bye, Report
from noonday.worker.identity import Identity
from noonday.worker.reporting import MAX_REFUSED_SEC
from tests.worker.parts import POOL, Parts


async def parts() -> Parts:
    made = Parts()
    await made.open()
    return made


async def reports(it: Parts) -> list[Report]:
    return [each for each in await it.bus.entries() if isinstance(each, Report)]


async def test_an_ended_run_is_reported_and_acked_and_its_slot_is_free() -> None:
    it = await parts()
    run = await it.started("quick")
    assert it.capacity.free_for_coroutines(POOL) == 1
    while not it.ended:
        await asyncio.sleep(0)
    await it.reporter.report_once()
    assert [each.outcome for each in await reports(it)] == [Outcome.SUCCEEDED]
    assert (it.bus.done, len(it.active), it.capacity.free_for_coroutines(POOL)) == ([run.dispatch], 0, 2)
    assert it.rounds.start_wake.is_set()


async def test_a_dispatch_is_not_acked_before_the_log_has_its_report() -> None:
    it = await parts()
    run = await it.claimed()
    it.capacity.admit([run])
    it.ended.end_unstarted(run, Outcome.EXPIRED)
    it.bus.is_away = True
    await it.reporter.report_once()
    assert (it.signals.acked, it.bus.done, run.is_acked) == ([], [], False)
    it.bus.is_away = False
    await it.reporter.report_once()
    assert (it.bus.done, run.is_acked) == ([run.dispatch], True)


async def test_sending_all_does_not_ack() -> None:
    it = await parts()
    run = await it.claimed()
    it.capacity.admit([run])
    it.ended.end_unstarted(run, Outcome.EXPIRED)
    it.signals.is_away = True
    await it.reporter.send_all()
    assert len(await reports(it)) == 1
    assert it.bus.done == []


async def test_the_end_of_an_abandoned_run_is_reported_once() -> None:
    it = await parts()
    run = await it.started()
    it.active.interrupt_all()
    it.active.abandon(run)
    while len(it.ended) < 2:
        await asyncio.sleep(0)
    await it.reporter.report_once()
    assert len(await reports(it)) == 1


async def test_all_started_runs_are_finished() -> None:
    it = await parts()
    await it.started("quick")
    await it.started("quick")
    assert await it.reporter.finish_all() == 2
    assert len(await reports(it)) == 2


async def test_an_identity_that_has_not_joined_sends_nothing() -> None:
    it = await parts()
    unknown = Identity(it.membership.id)
    it.reporter.enqueue_for(unknown, Bye(unknown.id, 0))
    assert len(it.outbox) == 0


async def test_a_log_that_answers_and_refuses_for_long_cannot_be_reported_to() -> None:
    it = await parts()
    await it.reporter.note_refusal()
    it.clock.advance(MAX_REFUSED_SEC - 1)
    assert it.reporter.can_report()
    it.clock.advance(1)
    assert not it.reporter.can_report()
