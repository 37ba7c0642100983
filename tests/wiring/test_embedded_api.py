"""An embedded engine is no black box: queries and commands on it, and its API beside the application."""

import asyncio
import inspect
import socket
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import pytest

from noonday import Context, DoNotRetry, Noonday
from noonday.crypto.tokens import mint
from noonday.model.alert_view import AlertView
from noonday.model.errors import AlreadyRunning, BadSettings, Conflict, InvalidInput, NotFound, Unauthorized
from noonday.runtime.clock import SystemClock
from noonday.sdk.alerts import AlertsClient
from noonday.sdk.client import Client
from noonday.wiring.engine_queries import EngineAlerts, EngineQueries
from noonday.wiring.listening import PortTaken
from noonday.wiring.serving import ServedApi, address_of
from tests.support.eventually import eventually

WITHIN_SEC = 60
SECRET = "0123456789abcdef0123456789abcdef"


def application() -> Noonday:
    app = Noonday()

    @app.handler("echo", pool="p")
    async def echo(ctx: Context, payload: int) -> int:
        return payload

    @app.handler("fail", pool="p")
    async def fail(ctx: Context) -> None:
        raise DoNotRetry("broken")

    @app.cron("0 3 * * *", pool="p")
    async def nightly(ctx: Context) -> str:
        return "done"

    return app


def token_for(secret: str) -> str:
    now = SystemClock().now_ms() / 1000
    return mint(secret, tenant="default", subject="test", scopes=["read", "write"], ttl_seconds=600, now=now)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


# -- queries and commands ----------------------------------------------------------------------------------------------


async def test_jobs_are_listed_and_their_history_is_read_in_pages() -> None:
    app = application()
    async with app.embedded(":memory:") as running:
        (nightly,) = [job async for job in running.list_jobs(name="nightly").items()]
        for _ in range(3):
            run = await running.trigger(nightly.job_id)
            assert await app.result(run, timeout=WITHIN_SEC) == "done"
        pages = [page async for page in running.list_executions(nightly.job_id, limit=2)]
        assert [len(page.executions) for page in pages] == [2, 1]
        assert pages[0].executions[0].execution_id == run.execution_id
        assert [job async for job in running.list_jobs(state="CANCELLED").items()] == []


async def test_a_job_is_paused_resumed_and_its_times_are_shown() -> None:
    app = application()
    async with app.embedded(":memory:") as running:
        job = await app.enqueue("echo", 1, every=3600)
        assert (await running.pause(job.job_id)).state == "PAUSED"
        assert (await running.resume(job.job_id)).state == "ACTIVE"
        planned = (await running.occurrences(job.job_id)).occurrences
        assert len(planned) == 24
        assert (await running.delete(job.job_id)).state == "CANCELLED"
        with pytest.raises(Conflict):
            await running.pause(job.job_id)


async def test_a_job_is_paused_until_a_time_and_one_of_its_occurrences_is_moved() -> None:
    app = application()
    async with app.embedded(":memory:") as running:
        job = await app.enqueue("echo", 1, every=3600)
        assert job.next_fire_at is not None
        until = job.next_fire_at - timedelta(minutes=1)
        assert (await running.pause(job.job_id, until=until)).paused_until == until
        with pytest.raises(InvalidInput, match="must be in the future"):
            await running.pause(job.job_id, until=until - timedelta(days=2))
        to = job.next_fire_at + timedelta(minutes=30)
        moved = await running.move(job.job_id, job.next_fire_at, to, reason="a window")
        assert [(each.at, each.to, each.by) for each in moved.moves] == [(job.next_fire_at, to, "application")]
        with pytest.raises(InvalidInput, match="needs a time zone"):
            await running.move(job.job_id, to, to.replace(tzinfo=None))


async def test_job_is_resumed_at_the_end_of_its_pause() -> None:
    app = application()
    async with app.embedded(":memory:") as running:
        job = await app.enqueue("echo", 1, every=3600)
        await running.pause(job.job_id, until=datetime.now(UTC) + timedelta(milliseconds=300))

        async def is_active() -> bool:
            return (await running.get_job(job.job_id)).state == "ACTIVE"

        await eventually(is_active)


async def test_dead_letters_and_alerts_are_seen_and_settled() -> None:
    app = application()
    async with app.embedded(":memory:") as running:
        jobs = [await app.enqueue("fail"), await app.enqueue("fail")]

        async def letters() -> list[str]:
            return [letter.execution.execution_id async for letter in running.dead_letters(pool="p").items()]

        async def all_letters() -> list[str] | None:
            found = await letters()
            return found if len(found) == len(jobs) else None

        async def unread() -> tuple[AlertView, ...]:
            return (await running.alerts.list(unread=True)).alerts

        first, second = await eventually(all_letters)
        assert (await running.retry_dead(first)).retry_of == first
        assert (await running.archive_dead(second)).archived
        found = await eventually(unread)
        assert {alert.job_id for alert in found} <= {job.job_id for job in jobs}
        seen = await running.alerts.acknowledge(found[0].id)
        assert (await running.alerts.get(found[0].id)).acknowledged_at == seen.acknowledged_at
        await running.alerts.acknowledge_all()
        assert (await running.alerts.list(unread=True, kind=found[0].kind)).unread == 0


@pytest.mark.parametrize("limit", [0, -1, 501])
async def test_a_page_has_a_bounded_size(limit: int) -> None:
    async with application().embedded(":memory:") as running:
        with pytest.raises(InvalidInput, match="must be from 1 to 500"):
            running.list_jobs(limit=limit)
        with pytest.raises(InvalidInput, match="must be from 1 to 500"):
            await running.alerts.list(limit=limit)


async def test_questions_that_make_no_sense_are_refused_with_what_is_allowed() -> None:
    async with application().embedded(":memory:") as running:
        with pytest.raises(InvalidInput, match="type is 'CRONN': must be one of ONE_TIME"):
            running.list_jobs(type="CRONN")
        with pytest.raises(InvalidInput, match="kind is 'loud'"):
            await running.alerts.list(kind="loud")
        with pytest.raises(InvalidInput, match="from needs a time zone"):
            await running.occurrences("x", datetime(2030, 1, 1))  # noqa: DTZ001
        with pytest.raises(InvalidInput, match="must not be before"):
            await running.occurrences("x", datetime(2030, 1, 2, tzinfo=UTC), datetime(2030, 1, 1, tzinfo=UTC))
        for unknown in (running.get_job, running.trigger, running.get_execution, running.alerts.get):
            with pytest.raises(NotFound):
                await unknown("01999999-9999-7999-8999-999999999999")


@pytest.mark.parametrize(("own", "client"), [(EngineQueries, Client), (EngineAlerts, AlertsClient)])
def test_methods_have_the_names_and_parameters_of_the_client(own: type, client: type) -> None:
    """What is learned with an embedded engine holds for a server. Some parameters of the client are about HTTP."""
    about_http = {"idempotency_key", "executions", "wait"}
    for name, method in vars(own).items():
        if not name.startswith("_"):
            parameters = set(inspect.signature(getattr(client, name)).parameters) - about_http
            assert set(inspect.signature(method).parameters) == parameters, name


# -- its API -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_the_api_is_served_beside_the_application_with_the_tokens_of_its_file(tmp_path: Path) -> None:
    app, data = application(), tmp_path / "x.db"
    async with app.embedded(data, serve="127.0.0.1:0") as running:
        assert running.url is not None
        assert running.healthy
        token = token_for((tmp_path / "x.db.secret").read_text().strip())
        async with Client(running.url, token) as client:
            job = await app.enqueue("echo", 7)
            assert await client.result(job, timeout=WITHIN_SEC) == 7
        async with Client(running.url, token_for(SECRET)) as stranger:
            with pytest.raises(Unauthorized):
                await stranger.get_job(job.job_id)
        url = running.url
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectionError):
            await session.get(f"{url}/healthz")


@pytest.mark.slow
async def test_a_secret_of_the_application_signs_the_tokens_and_unknown_hosts_are_refused() -> None:
    async with application().embedded(":memory:", serve="127.0.0.1:0", auth_secret=SECRET) as running:
        assert running.url is not None
        async with Client(running.url, token_for(SECRET)) as client:
            assert [page async for page in client.list_jobs()]
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{running.url}/docs", headers={"Host": "evil.example"}) as answer,
        ):
            assert answer.status == 421


async def test_an_address_beyond_loopback_needs_a_secret(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match="tokens are not configured"):
        async with application().embedded(tmp_path / "x.db", serve="0.0.0.0:0"):
            pass


async def test_a_port_in_use_is_named_and_leaves_the_file_free(tmp_path: Path) -> None:
    app, data = application(), tmp_path / "x.db"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortTaken, match=rf"port {port} on 127\.0\.0\.1 is in use.*serve=\"127\.0\.0\.1:0\""):
            async with app.embedded(data, serve=f"127.0.0.1:{port}"):
                pass
    async with app.embedded(data, serve=f"127.0.0.1:{port}") as running:
        assert running.url == f"http://127.0.0.1:{port}"
    async with app.embedded(data, serve=f"127.0.0.1:{port}"):
        pass


@pytest.mark.parametrize(
    "serve", ["8080", ":8080", "127.0.0.1", "127.0.0.1:http", "127.0.0.1:65536", "localhost:-1", ""]
)
async def test_an_address_without_host_or_port_is_refused(serve: str) -> None:
    with pytest.raises(InvalidInput, match="expected an address and a port"):
        async with application().embedded(":memory:", serve=serve):
            pass


async def test_an_address_is_given_once() -> None:
    with pytest.raises(InvalidInput, match="serve cannot be combined with port"):
        async with application().embedded(":memory:", serve="127.0.0.1:0", port=8080):
            pass


def test_an_address_may_be_of_ipv6() -> None:
    assert address_of("[::1]:8080") == {"host": "::1", "port": 8080}


async def test_without_an_address_nothing_is_served() -> None:
    async with application().embedded(":memory:") as running:
        assert running.url is None


async def test_an_api_that_has_stopped_is_a_problem() -> None:
    async def fail() -> None:
        raise OSError("no more descriptors")

    task = asyncio.create_task(fail())
    served = ServedApi("http://127.0.0.1:8080", task, AsyncExitStack())
    assert served.problems() == []
    await asyncio.wait({task})
    assert served.problems() == ["the API has stopped: OSError('no more descriptors')"]


# -- a second engine ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("serve", [None, "same port"])
async def test_a_second_engine_in_the_process_is_told_to_share_the_first(tmp_path: Path, serve: str | None) -> None:
    address = f"127.0.0.1:{free_port()}" if serve else None
    async with application().embedded(tmp_path / "x.db", serve=address):
        with pytest.raises(AlreadyRunning, match=r"this process already runs an engine on .*x\.db"):
            async with application().embedded(tmp_path / "x.db", serve=address):
                pass
