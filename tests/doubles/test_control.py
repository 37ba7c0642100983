from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from noonday.doubles.behaviour import Behaviour
from noonday.doubles.control import Control, NewInbound
from noonday.doubles.page import SHOWN_CHARS
from noonday.doubles.receipt_sender import MAX_WAITING, ReceiptSender, is_on_loopback
from noonday.doubles.running import Doubles, DoublesPortTaken
from noonday.doubles.twilio import TwilioDouble
from noonday.model.notifications.sending import OutcomeKind, ProviderKind
from tests.notifications.providers.doubles import Running, running
from tests.notifications.providers.messages import content
from tests.notifications.providers.receipt_door import receipt_door
from tests.support.clock import ManualClock
from tests.support.eventually import eventually

pytestmark = pytest.mark.slow


@asynccontextmanager
async def control(kind: ProviderKind = ProviderKind.TWILIO) -> AsyncIterator[tuple[Running, aiohttp.ClientSession]]:
    async with running(kind) as double, aiohttp.ClientSession(double.doubles.url) as http:
        yield double, http


def login_of(twilio: Running) -> tuple[str, dict[str, str]]:
    secrets = twilio.account.secrets
    basic = aiohttp.encode_basic_auth(secrets["account_sid"], secrets["auth_token"])
    return secrets["account_sid"], {"Authorization": basic}


async def json_of(http: aiohttp.ClientSession, path: str) -> Any:
    async with http.get(path) as answer:
        assert answer.status == 200
        return await answer.json()


async def test_the_outbox_lists_what_was_accepted() -> None:
    async with control() as (twilio, http):
        for number in range(3):
            await twilio.send(f"+493012345{number}")
        found = (await json_of(http, "/outbox?limit=2"))["messages"]
        assert [each["to"] for each in found] == ["+4930123452", "+4930123451"]
        assert found[0]["text"] == "Order A-17 is on its way."
        older = (await json_of(http, f"/outbox?before={found[-1]['id']}"))["messages"]
        assert [each["to"] for each in older] == ["+4930123450"]
        assert (await json_of(http, "/outbox?to=%2B4930123451"))["messages"] == [found[1]]
        assert (await json_of(http, "/outbox?channel=email"))["messages"] == []
        assert await json_of(http, f"/outbox/{found[0]['id']}") == found[0]
        assert [each["answer"] for each in (await json_of(http, "/calls"))["calls"]] == ["accepted"] * 3
        async with http.delete("/outbox") as answer:
            assert answer.status == 204
        async with http.get(f"/outbox/{found[0]['id']}") as answer:
            assert answer.status == 404


async def test_the_page_executes_nothing_of_a_message() -> None:
    async with control(ProviderKind.SMTP) as (mail, http):
        evil = "<script>alert(1)</script>" + "x" * SHOWN_CHARS
        await mail.send(content=content(title="<b>hi</b>", text=evil, html=evil))
        async with http.get("/?channel=EMAIL") as answer:
            page, policy = await answer.text(), answer.headers["Content-Security-Policy"]
        assert "<script" not in page
        assert "&lt;script&gt;" in page
        assert "&lt;b&gt;hi&lt;/b&gt; to ann@example.com" in page
        assert "script-src" not in policy
        assert policy.startswith("default-src 'none'; style-src 'self';")
        assert not {"<style", "style=", "onclick"} & set(page.split())
        async with http.get("/page.css") as answer:
            assert answer.content_type == "text/css"


async def test_the_page_links_to_older_messages() -> None:
    async with control() as (twilio, http):
        for _ in range(51):
            await twilio.send()
        async with http.get("/?channel=SMS") as answer:
            page = await answer.text()
        assert page.count("<article") == 50
        assert '<a href="/?channel=SMS&amp;before=2">Older messages</a>' in page
        async with http.get("/?channel=SMS&before=2") as answer:
            assert (await answer.text()).count("<article") == 1


async def test_a_script_is_set_over_the_control_port() -> None:
    async with control() as (twilio, http):
        async with http.put("/scripts/+4930123456", json=[{"code": "30001"}, {}]) as answer:
            assert answer.status == 204
        assert await json_of(http, "/scripts") == {"+4930123456": [{"code": "30001"}, {}]}
        kinds = [(await twilio.send()).kind for _ in range(2)]
        assert kinds == [OutcomeKind.RETRY, OutcomeKind.ACCEPTED]
        assert await json_of(http, "/scripts") == {}


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ([{"kode": "1"}], "unknown field `kode`"),
        ([{"delay_ms": 10**9}], "<= 300000"),
        ([{"at": "LATER"}], "Invalid enum value 'LATER'"),
        ([{}] * 101, "at most 100 behaviours, this one has 101"),
        ("x" * 300_000, "more than 262144 bytes"),
    ],
)
async def test_a_flawed_script_is_refused(body: Any, detail: str) -> None:
    async with control() as (_, http), http.put("/scripts/+4930123456", json=body) as answer:
        assert answer.status == 422
        assert detail in (await answer.json())["detail"]


async def test_scripts_are_cleared() -> None:
    async with control() as (twilio, http):
        twilio.doubles.scripts.put("+4930123456", [Behaviour(code="21610")])
        async with http.delete("/scripts") as answer:
            assert answer.status == 204
        assert (await twilio.send()).kind is OutcomeKind.ACCEPTED


async def test_a_web_page_of_another_name_is_refused() -> None:
    async with control() as (_, http):
        for host, status in (
            ("evil.example.com", 403),
            ("127.0.0.1.evil.test:80", 403),
            ("localhost:1", 200),
            ("[::1]:1", 200),
        ):
            async with http.get("/outbox", headers={"Host": host}) as answer:
                assert (host, answer.status) == (host, status)


async def test_a_user_answers_stop() -> None:
    async with receipt_door() as door, control() as (twilio, http):
        stop = {"url": door.url, "from": "+4930123456", "to": "+15005550006", "text": "STOP"}
        async with http.post("/inbound", json=stop) as answer:
            assert await answer.json() == {"status": 200, "error": None}
        assert (await twilio.send()).code == "21610"
        async with http.post("/inbound", json={"text": "STOP"}) as answer:
            assert answer.status == 422


async def test_receipts_go_to_the_loopback_only() -> None:
    async with running(ProviderKind.TWILIO) as twilio:
        await twilio.send(callback_url="https://noonday.example.com/v1/receipts/main")
        [message] = twilio.accepted
        await eventually(lambda: len(message.receipts) == 2)
        assert {each.error for each in message.receipts} == {"a double calls loopback addresses only"}


def test_only_this_machine_is_the_loopback() -> None:
    assert all(map(is_on_loopback, ("http://localhost:80/a", "http://127.0.0.9/", "http://[::1]:8080/")))
    assert not any(
        map(is_on_loopback, ("http://localhost.test/", "http://10.0.0.1/", "nowhere", "http://[::2]/", "http://a:b/"))
    )


async def test_receipts_wait_as_scripted_and_are_bounded() -> None:
    async with receipt_door() as door, running(ProviderKind.TWILIO) as twilio:
        late = Behaviour(receipts=["delivered"], receipts_delay_ms=60_000)
        await twilio.send("+4930123456", late, callback_url=door.url)
        sender = twilio.doubles.receipts
        await eventually(lambda: twilio.clock.sleepers == 1)
        assert (sender.waiting, door.requests) == (1, [])
        for _ in range(MAX_WAITING):
            sender.send_all("p", [("sent", lambda: (door.url, {}, b""))], 60_000)
        assert (sender.waiting, sender.dropped) == (MAX_WAITING, 1)
        await eventually(lambda: twilio.clock.sleepers == MAX_WAITING)


async def test_a_receipt_that_nobody_takes_is_noted() -> None:
    async with running(ProviderKind.TWILIO) as twilio:
        await twilio.send(callback_url="http://127.0.0.1:9/")
        [message] = twilio.accepted
        await eventually(lambda: len(message.receipts) == 2)
        assert {(each.status, each.error) for each in message.receipts} == {(None, "ClientConnectorError")}


async def test_a_taken_port_is_named() -> None:
    async with running(ProviderKind.TWILIO) as twilio:
        for ports in ({"port": twilio.doubles.port}, {"smtp_port": twilio.doubles.smtp.port}):
            with pytest.raises(DoublesPortTaken, match=f"port {next(iter(ports.values()))} is not available"):
                await Doubles(ManualClock()).start(**ports)


async def test_the_resource_of_an_sms_is_shown_to_its_account() -> None:
    async with control() as (twilio, http):
        created = (await twilio.send()).provider_id
        sid, login = login_of(twilio)
        path = f"/2010-04-01/Accounts/{sid}/Messages"
        async with http.get(f"{path}/{created}.json", headers=login) as answer:
            assert (await answer.json())["status"] == "queued"
        for wrong in (f"{path}/SM1.json", f"{path.replace(sid, 'AC1')}.json"):
            async with http.get(wrong, headers=login) as answer:
                assert (answer.status, (await answer.json())["code"]) == (404, 20404)
        async with http.get(f"{path}/{created}.json") as answer:
            assert (answer.status, (await answer.json())["code"]) == (401, 20003)


@pytest.mark.parametrize(
    ("form", "code"),
    [
        ({}, 21604),
        ({"To": "+4930123456"}, 21603),
        ({"To": "+4930123456", "From": "Shop"}, 21602),
        ({"To": "+4930123456", "From": "Shop", "Body": "x" * 1_601}, 21617),
        ({"To": "030123456", "From": "Shop", "Body": "x"}, 21211),
    ],
)
async def test_the_double_checks_the_form(form: dict[str, str], code: int) -> None:
    async with control() as (twilio, http):
        assert isinstance(twilio.doubles.twilio, TwilioDouble)
        sid, login = login_of(twilio)
        async with http.post(f"/2010-04-01/Accounts/{sid}/Messages.json", data=form, headers=login) as answer:
            assert (answer.status, (await answer.json())["code"]) == (400, code)


def test_the_control_port_has_no_route_of_a_provider() -> None:
    doubles = Doubles(ManualClock())
    routes = {route.path for route in Control(doubles.outbox, doubles.scripts, doubles.twilio).routes()}
    assert not routes & {route.path for route in doubles.twilio.routes()}
    assert isinstance(doubles.receipts, ReceiptSender)
    assert NewInbound("http://localhost", "+1", "+2", "STOP").user == "+1"
