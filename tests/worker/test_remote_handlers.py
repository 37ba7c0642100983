import pytest

from noonday.model.errors import Conflict
from noonday.model.handler import Mode
from noonday.worker.remote import RemoteRuns
from noonday.worker.remote_handlers import KNOWN_SEC, MAX_HANDLERS, RemoteHandlers
from tests.support.clock import ManualClock
from tests.support.factories import dispatch


def handlers(clock: ManualClock) -> RemoteHandlers:
    return RemoteHandlers("go", RemoteRuns(clock, "i", 30), clock)


def test_a_handler_is_found_for_the_tenant_that_named_it_lately() -> None:
    clock = ManualClock()
    found = handlers(clock)
    assert found.note("acme", frozenset(["hello"]))
    assert not found.note("acme", frozenset(["hello"]))
    mine = dispatch(tenant="acme", pool="go", handler="hello")
    handler = found.find(mine)
    assert handler is not None
    assert handler.mode is Mode.REMOTE
    assert found.find(dispatch(tenant="other", pool="go", handler="hello")) is None
    clock.advance(KNOWN_SEC + 1)
    assert found.find(mine) is None
    found.forget_absent()
    found.note("acme", frozenset(["hello"]))
    assert found.find(mine) is handler


def test_the_number_of_handlers_is_bounded() -> None:
    found = handlers(ManualClock())
    found.note("acme", frozenset(f"h{number}" for number in range(MAX_HANDLERS)))
    with pytest.raises(Conflict, match="1000 at most"):
        found.note("acme", frozenset(["one-more"]))
    assert len(found.infos) == MAX_HANDLERS
