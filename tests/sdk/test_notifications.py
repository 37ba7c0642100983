"""`client.notifications`, `client.users` and `client.providers`, against a server with prepared answers."""

import inspect
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from noonday.model.errors import InvalidInput, NotFound, StoreUnavailable
from noonday.model.notifications.notification import NotificationPriority, NotificationStatus
from noonday.model.notifications.sending import ChannelKind, ProviderKind
from noonday.model.notifications.wire import (
    AcceptedNotification,
    AccountLimits,
    NotificationContent,
    NotificationPage,
    NotificationSpec,
    NotificationView,
    ProviderView,
    UserSpec,
    UserView,
)
from noonday.sdk import notifications as module
from noonday.sdk.client import Client
from noonday.sdk.notifications import NotificationsClient
from noonday.sdk.problems import Problem
from noonday.sdk.providers import ProvidersClient
from noonday.sdk.sync import SyncClient, SyncNotifications, SyncProviders, SyncUsers
from noonday.sdk.users import UsersClient
from tests.sdk.test_client import NOON, Wire, listening, problem, served_from_a_thread

ID = "01a230d5-1280-81a7-9c1e-5b2f6d8e9a01"
ACCEPTED = AcceptedNotification(id=ID, status=NotificationStatus.SCHEDULED, send_at=NOON)
CONTENT = {"title": "Shipped", "text": "Order A-17"}
SPEC = NotificationSpec(user_id="u-17", channels=(ChannelKind.EMAIL,), content=NotificationContent(**CONTENT))
VIEW = NotificationView(
    id=ID,
    user_id="u-17",
    channels=(ChannelKind.EMAIL,),
    priority=NotificationPriority.NORMAL,
    send_at=NOON,
    expires_at=NOON + timedelta(days=1),
    status=NotificationStatus.SENT,
    final=True,
    reason=None,
    events=(),
)
USER = UserView(
    user_id="u-17", zone=None, locale=None, email="a@example.com", phone=None, created_at=NOON, updated_at=NOON
)
ACCOUNT = ProviderView(
    name="mail",
    kind=ProviderKind.SMTP,
    channel=ChannelKind.EMAIL,
    order=1,
    limits=AccountLimits(),
    settings={"host": "smtp.example.com"},
    secret_names=("password",),
    fault=None,
    fault_at=None,
    created_at=NOON,
    updated_at=NOON,
)


@pytest.fixture
async def wire():
    async with listening(Wire()) as served:
        yield served


@pytest.fixture
async def client(wire):
    async with Client(wire.url, "a-token", sleep=wire.sleep) as opened:
        yield opened


async def test_a_notification_is_given_whole_or_in_fields(client, wire):
    wire.will(ACCEPTED, ACCEPTED)
    assert await client.notifications.send(SPEC) == ACCEPTED
    await client.notifications.send(user_id="u-17", channels=["email"], content=CONTENT, idempotency_key="k")
    assert [(asked.method, asked.path) for asked in wire.asked] == [("POST", "/v1/notifications")] * 2
    assert wire.asked[0].body == wire.asked[1].body == {"user_id": "u-17", "channels": ["EMAIL"], "content": CONTENT}
    assert wire.asked[1].headers["Idempotency-Key"] == '"k"'


async def test_each_notification_has_a_key_of_version_7_by_default(client, wire):
    wire.will(ACCEPTED, ACCEPTED)
    await client.notifications.send(SPEC)
    await client.notifications.send(SPEC)
    keys = [UUID(asked.headers["Idempotency-Key"].strip('"')) for asked in wire.asked]
    assert [key.version for key in keys] == [7, 7]
    assert keys[0] != keys[1]


async def test_a_local_time_is_a_datetime_without_a_zone_or_a_text(client, wire):
    wire.will(ACCEPTED, ACCEPTED)
    fields = {"user_id": "u-17", "channels": ["EMAIL"], "content": CONTENT}
    await client.notifications.send(**fields, local_time=datetime(2030, 1, 31, 9))  # noqa: DTZ001
    await client.notifications.send(**fields, local_time="2030-01-31T09:00")
    assert [asked.body["local_time"] for asked in wire.asked] == ["2030-01-31T09:00:00", "2030-01-31T09:00"]
    with pytest.raises(InvalidInput, match="must have no time zone"):
        await client.notifications.send(**fields, local_time=datetime(2030, 1, 31, 9, tzinfo=UTC))
    with pytest.raises(InvalidInput, match="scheduled_at"):
        await client.notifications.send(**fields, scheduled_at=datetime(2030, 1, 31, 9))  # noqa: DTZ001


async def test_misspelt_field_is_refused_before_anything_is_sent(client, wire):
    with pytest.raises(InvalidInput, match="did you mean channels"):
        await client.notifications.send(user_id="u-17", chanels=["EMAIL"], content=CONTENT)
    assert wire.asked == []


async def test_each_notification_of_a_batch_has_a_result_or_a_problem(client, wire):
    refused = {"type": "https://noonday.dev/problems/store-unavailable", "detail": "away", "status": 503}
    wire.will({"notifications": [ACCEPTED, refused]})
    first, second = await client.notifications.send_many([SPEC, SPEC])
    assert first == ACCEPTED
    assert isinstance(second, Problem)
    assert isinstance(second.error(), StoreUnavailable)


async def test_large_batches_are_divided_and_each_has_its_own_key(client, wire, monkeypatch):
    monkeypatch.setattr(module, "BATCH_NOTIFICATIONS", 2)
    wire.will({"notifications": [ACCEPTED] * 2}, {"notifications": [ACCEPTED]})
    assert await client.notifications.send_many([SPEC] * 3, idempotency_key="k") == [ACCEPTED] * 3
    assert [len(asked.body["notifications"]) for asked in wire.asked] == [2, 1]
    assert [asked.headers["Idempotency-Key"] for asked in wire.asked] == ['"k/0"', '"k/1"']


async def test_a_later_batch_that_fails_does_not_hide_the_results_of_earlier_ones(client, wire, monkeypatch):
    monkeypatch.setattr(module, "BATCH_BYTES", 200)
    wire.will({"notifications": [ACCEPTED]}, problem(503, "store-unavailable"))
    with pytest.raises(StoreUnavailable) as failed:
        await client.notifications.send_many([SPEC, SPEC])
    assert failed.value.context["answered"] == [ACCEPTED]


async def test_notifications_are_read_by_id_and_by_user(client, wire):
    wire.will(VIEW, NotificationPage(notifications=(), next="5_x"))
    assert await client.notifications.get(ID) == VIEW
    page = await client.notifications.list("a b", status="SENT", cursor="4_x", limit=1)
    assert page.next == "5_x"
    assert [asked.path for asked in wire.asked] == [f"/v1/notifications/{ID}", "/v1/users/a%20b/notifications"]
    assert wire.asked[1].query == {"status": "SENT", "cursor": "4_x", "limit": "1"}


async def test_profiles_are_put_read_and_deleted(client, wire):
    wire.will(USER, USER, USER, None, problem(404, "not-found"))
    await client.users.put("u-17", email="a@example.com", zone="Europe/Berlin")
    await client.users.put("u-17", UserSpec(email="a@example.com"), idempotency_key="k")
    assert await client.users.get("u-17") == USER
    await client.users.delete("u-17")
    with pytest.raises(NotFound):
        await client.users.delete("u-17")
    assert {asked.path for asked in wire.asked} == {"/v1/users/u-17"}
    assert [asked.body for asked in wire.asked[:2]] == [
        {"email": "a@example.com", "zone": "Europe/Berlin"},
        {"email": "a@example.com"},
    ]


async def test_provider_accounts_are_put_listed_and_deleted(client, wire):
    wire.will(ACCOUNT, ACCOUNT, {"providers": [ACCOUNT]}, None)
    await client.providers.put("mail", kind="smtp", settings={"host": "smtp.example.com"}, secrets={"password": "p"})
    assert await client.providers.get("mail") == ACCOUNT
    assert await client.providers.list() == (ACCOUNT,)
    await client.providers.delete("mail")
    assert wire.asked[0].body == {
        "kind": "SMTP",
        "settings": {"host": "smtp.example.com"},
        "secrets": {"password": "p"},
    }
    assert [asked.method for asked in wire.asked] == ["PUT", "GET", "GET", "DELETE"]


async def test_secrets_that_are_not_given_are_not_sent(client, wire):
    wire.will(ACCOUNT)
    await client.providers.put("mail", kind="SMTP", order=2)
    assert "secrets" not in wire.asked[0].body


def test_synchronous_clients_have_the_same_methods():
    with served_from_a_thread() as wire, SyncClient(wire.url) as client:
        wire.will(ACCEPTED, USER, {"providers": []})
        assert client.notifications.send(SPEC) == ACCEPTED
        assert client.users.get("u-17") == USER
        assert client.providers.list() == ()
    pairs = ((NotificationsClient, SyncNotifications), (UsersClient, SyncUsers), (ProvidersClient, SyncProviders))
    for of, sync in pairs:
        public = {name for name, _ in inspect.getmembers(of, inspect.isfunction) if not name.startswith("_")}
        assert public <= set(dir(sync))
