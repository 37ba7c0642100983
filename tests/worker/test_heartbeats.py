"""Heartbeats and Byes of a worker."""

from noonday.model.message import Beat, Bye
from noonday.worker.context import Context
from tests.worker.parts import Parts


async def parts() -> Parts:
    made = Parts(beat_sec=10.0)
    await made.open()
    return made


async def sent(it: Parts, kind: type[Beat] | type[Bye]) -> list[Beat | Bye]:
    await it.outbox.send()
    return [each for each in await it.bus.entries() if isinstance(each, kind)]


def beat(it: Parts) -> None:
    it.heartbeats.beat(it.active.all(), it.clock.monotonic())


async def test_a_heartbeat_is_sent_when_it_is_due() -> None:
    it = await parts()
    it.clock.advance(9.9)
    beat(it)
    assert await sent(it, Beat) == []
    it.clock.advance(0.1)
    beat(it)
    assert [each.worker_id for each in await sent(it, Beat)] == [it.membership.id]


async def test_progress_is_sent_every_second() -> None:
    it = await parts()
    run = await it.started()
    run.start_reported = True
    assert isinstance(run.context, Context)
    run.context.heartbeat({"page": 1})
    it.clock.advance(1)
    beat(it)
    (made,) = await sent(it, Beat)
    assert isinstance(made, Beat)
    assert [(each.execution_id, each.dispatch) for each in made.progress] == [(run.dispatch.execution_id, 1)]
    assert not run.context._has_new_heartbeat


async def test_an_unsent_heartbeat_is_not_followed_by_another() -> None:
    it = await parts()
    for _ in range(2):
        it.clock.advance(10)
        beat(it)
    assert len(await sent(it, Beat)) == 1


async def test_a_former_identity_beats_until_its_runs_are_reported() -> None:
    it = await parts()
    former = it.membership.identity
    it.membership.change_identity()
    beat(it)
    assert [each.worker_id for each in await sent(it, Beat)] == [former.id]
    it.heartbeats.end_former({former})
    assert await sent(it, Bye) == []
    it.heartbeats.end_former(set())
    assert [each.worker_id for each in await sent(it, Bye)] == [former.id]
    assert it.membership.former == []


async def test_a_stop_ends_every_identity_that_has_joined() -> None:
    it = await parts()
    former = it.membership.identity
    it.membership.change_identity()
    it.heartbeats.end_all()
    assert [each.worker_id for each in await sent(it, Bye)] == [former.id]
