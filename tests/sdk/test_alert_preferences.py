"""`client.alert_preferences`, against a server with prepared answers."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from aiohttp import web

from noonday.model.errors import Conflict, InvalidInput
from noonday.model.notice import USUAL_KINDS, ChannelType, Recipient
from noonday.model.preference import PreferenceSpec, PreferenceView, SentNotice
from noonday.sdk.alert_preferences import AlertPreferencesClient
from noonday.sdk.client import Client
from noonday.sdk.sync import SyncAlertPreferences, SyncClient
from tests.sdk.test_client import Wire, listening, problem, served_from_a_thread

NOON = datetime(2030, 1, 31, 12, tzinfo=UTC)
MAIL = Recipient(ChannelType.EMAIL, "ops@example.com")
VIEW = PreferenceView("ops", "sam", MAIL, USUAL_KINDS, 300, (), (), True, NOON, NOON)


@pytest.fixture
async def wire() -> AsyncIterator[Wire]:
    async with listening(Wire()) as served:
        yield served


@pytest.fixture
async def client(wire: Wire) -> AsyncIterator[Client]:
    async with Client(wire.url, "a-token", sleep=wire.sleep) as opened:
        yield opened


async def test_preference_is_put_with_the_given_fields(client: Client, wire: Wire) -> None:
    wire.will(VIEW, VIEW)
    assert await client.alert_preferences.put("ops", PreferenceSpec(MAIL, digest_seconds=0)) == VIEW
    await client.alert_preferences.put("ops", channel={"type": "EMAIL", "address": "ops@example.com"}, kinds=["SLOW"])
    first, second = wire.asked
    assert (first.method, first.path) == ("PUT", "/v1/alert-preferences/ops")
    assert "Idempotency-Key" in first.headers
    channel = {"type": "EMAIL", "address": "ops@example.com"}
    assert first.body["channel"] == second.body["channel"] == channel
    assert (first.body["digest_seconds"], second.body["kinds"]) == (0, ["SLOW"])


async def test_a_field_that_does_not_exist_is_refused_before_anything_is_sent(client: Client, wire: Wire) -> None:
    with pytest.raises(InvalidInput, match="did you mean digest_seconds"):
        await client.alert_preferences.put("ops", channel=MAIL, digest_second=5)
    assert wire.asked == []


async def test_preferences_are_read_deleted_and_tried_out(client: Client, wire: Wire) -> None:
    wire.will({"preferences": [VIEW]}, VIEW, web.Response(status=204), SentNotice("n", "j"))
    assert list(await client.alert_preferences.list()) == [VIEW]
    assert await client.alert_preferences.get("ops") == VIEW
    await client.alert_preferences.delete("ops")
    assert await client.alert_preferences.test("ops") == SentNotice("n", "j")
    assert [(each.method, each.path) for each in wire.asked] == [
        ("GET", "/v1/alert-preferences"),
        ("GET", "/v1/alert-preferences/ops"),
        ("DELETE", "/v1/alert-preferences/ops"),
        ("POST", "/v1/alert-preferences/ops/test"),
    ]


async def test_a_channel_that_is_not_set_up_raises(client: Client, wire: Wire) -> None:
    wire.will(problem(409, "conflict"))
    with pytest.raises(Conflict):
        await client.alert_preferences.put("ops", PreferenceSpec(MAIL))


def test_the_synchronous_client_has_the_same_methods() -> None:
    def methods(of: type) -> set[str]:
        return {name for name in vars(of) if not name.startswith("_")}

    assert methods(SyncAlertPreferences) == methods(AlertPreferencesClient)
    with served_from_a_thread() as wire, SyncClient(wire.url, "a-token") as client:
        answer: Any = {"preferences": [VIEW]}
        wire.will(answer)
        assert list(client.alert_preferences.list()) == [VIEW]
