"""A process has the handlers of the built-in pools that it works for."""

from collections.abc import AsyncIterator

import pytest

from noonday.crypto.keyring import Keyring
from noonday.model.pool import NOTICES_POOL
from noonday.webhooks.handler import NAME, POOL
from noonday.wiring.built_in_handlers import BuiltInHandlers
from noonday.wiring.embedded import built_in_pools
from noonday.wiring.settings import Settings
from noonday.wiring.settings.outgoing import EmailSettings
from noonday.wiring.settings.shell import ShellSettings
from tests.support.clock import ManualClock

EMAIL = EmailSettings(host="mail.example.com", sender="noonday@example.com")


@pytest.fixture
async def built_in() -> AsyncIterator[BuiltInHandlers]:
    handlers = BuiltInHandlers(Settings(email=EMAIL), Keyring.generate(), ManualClock())
    yield handlers
    await handlers.close()


async def test_pools_of_users_have_no_built_in_handlers(built_in: BuiltInHandlers) -> None:
    assert built_in.of_pools({"default"}) == {}


async def test_webhook_pool_calls_webhooks(built_in: BuiltInHandlers) -> None:
    handlers = built_in.of_pools({POOL, "default"})
    assert {key: handler.pool for key, handler in handlers.items()} == {(POOL, NAME): POOL}


async def test_notices_go_to_webhooks_and_to_each_channel(built_in: BuiltInHandlers) -> None:
    handlers = built_in.of_pools({NOTICES_POOL})
    assert {pool for pool, _ in handlers} == {NOTICES_POOL}
    assert {handler.pool for handler in handlers.values()} == {NOTICES_POOL}
    assert len(handlers) == 2


async def test_without_a_mail_server_notices_go_to_webhooks_only() -> None:
    built_in = BuiltInHandlers(Settings(), Keyring.generate(), ManualClock())
    assert list(built_in.of_pools({NOTICES_POOL})) == [(NOTICES_POOL, NAME)]
    await built_in.close()


@pytest.mark.parametrize("allowed", [False, True])
async def test_commands_run_only_if_they_are_allowed(allowed: bool) -> None:
    settings = Settings(shell=ShellSettings(allow=allowed))
    handlers = BuiltInHandlers(settings, Keyring.generate(), ManualClock())
    assert set(handlers.of_pools({"shell"})) == ({("shell", "shell.run")} if allowed else set())
    assert ("shell" in built_in_pools(settings)) == allowed
    await handlers.close()
