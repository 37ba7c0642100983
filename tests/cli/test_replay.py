"""`noonday replay`: from a real broker, into a real server."""

import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from noonday.cli import exits
from noonday.crypto.envelope import context_of
from noonday.crypto.keyring import Keyring, new_env_value
from noonday.drivers.kafka.bus import KafkaBus
from noonday.drivers.kafka.options import KafkaOptions
from noonday.drivers.kafka.replay import count
from noonday.model.errors import BusUnavailable
from noonday.model.message import Dispatch
from noonday.runtime.clock import SystemClock
from tests.cli.conftest import Run
from tests.cli.serving import eventually
from tests.scenarios.process import until
from tests.support.factories import dispatch
from tests.support.kafka import options_for_a_test

Answer = Callable[..., Any]
SPAN = ("--from", "-10m", "--to", "+10m")


@pytest.fixture
async def options() -> AsyncIterator[KafkaOptions]:
    async with options_for_a_test() as options:
        yield options


@pytest.fixture
def keys() -> str:
    return new_env_value()


@pytest.fixture
def _reads_the_broker(options: KafkaOptions, keys: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "noonday.toml").write_text(f'[kafka]\nservers = "{options.servers}"\n')
    monkeypatch.setenv("NOONDAY_CLUSTER_NAME", options.prefix)
    monkeypatch.setenv("NOONDAY_KEYS", keys)


pytestmark = pytest.mark.usefixtures("_reads_the_broker")


@pytest.fixture
def name() -> str:
    return uuid4().hex[:12]


async def publish(options: KafkaOptions, keys: str, *dispatches: Dispatch) -> None:
    bus = KafkaBus(options, Keyring.from_env_value(keys), SystemClock())
    await bus.start()
    try:
        await bus.publish(dispatches)
        await until(lambda: _can_be_read(options, keys, dispatches[0].pool))
    finally:
        await bus.close()


async def _can_be_read(options: KafkaOptions, keys: str, pool: str) -> bool:
    """Check that a topic can be read: a new topic may have no leader yet."""
    try:
        return await count(options, Keyring.from_env_value(keys), pool, 0, 2**60) > 0
    except BusUnavailable:
        return False


def dispatched(keys: str, payload: Any, **fields: Any) -> Dispatch:
    made = dispatch(**{"tenant": "default", "pool": "demo", "handler": "demo.echo", "payload": None, **fields})
    sealed = Keyring.from_env_value(keys).seal(json.dumps(payload).encode(), context_of(made.tenant, made.job_id))
    return dispatch(made.execution_id, made.number, **{**fields, "tenant": made.tenant, "pool": made.pool,
                    "handler": made.handler, "job_id": made.job_id, "payload": sealed})  # fmt: skip


def replayed(ask_json: Answer, name: str) -> list[dict[str, Any]]:
    jobs: list[dict[str, Any]] = ask_json("job", "list", "--tag", f"replay:{name}", "--all", "--json")["jobs"]
    return jobs


async def test_a_dry_run_counts_and_creates_nothing(
    ask_json: Answer, options: KafkaOptions, keys: str, name: str
) -> None:
    twice, once = dispatched(keys, 1), dispatched(keys, 2, handler="demo.sleep")
    await publish(options, keys, twice, twice, once, dispatched(keys, 3, tenant="other"))
    found = ask_json("replay", "--pool", "demo", *SPAN, "--id", name, "--dry-run", "--json")
    assert found == {
        "dispatches": 4,
        "executions": 2,
        "ofOtherTenants": 1,
        "handlers": {"demo.echo": 1, "demo.sleep": 1},
    }
    assert replayed(ask_json, name) == []


async def test_replay_creates_each_dispatched_job_once_more(
    ask_json: Answer, options: KafkaOptions, keys: str, name: str
) -> None:
    dispatches = [dispatched(keys, {"n": n}, name=f"job {n}", lane=0, timeout_sec=7) for n in range(3)]
    await publish(options, keys, *dispatches)
    words = ("replay", "--pool", "demo", *SPAN, "--id", name, "--yes", "--json")

    assert ask_json(*words)["created"] == 3

    jobs = replayed(ask_json, name)
    assert sorted(job["payload"]["n"] for job in jobs) == [0, 1, 2]
    assert {(job["priority"], job["timeoutSec"], job["type"]) for job in jobs} == {("HIGH", 7, "ONE_TIME")}
    assert sorted(job["name"] for job in jobs) == ["job 0", "job 1", "job 2"]
    eventually(lambda: all(job["state"] == "COMPLETED" for job in replayed(ask_json, name)))
    again = ask_json(*words)
    assert (again["created"], again["there_already"]) == (0, 3)
    assert len(replayed(ask_json, name)) == 3


async def test_a_replay_goes_into_another_pool(ask_json: Answer, options: KafkaOptions, keys: str, name: str) -> None:
    await publish(options, keys, dispatched(keys, {"a": 1, "b": 2}, pool="live", handler="shop.add"))
    ask_json("replay", "--pool", "live", *SPAN, "--into", "shop", "--id", name, "--yes", "--json")
    (job,) = replayed(ask_json, name)
    assert job["target"] == {"pool": "shop", "handler": "shop.add"}


async def test_a_replay_asks_first(ask: Run, ask_json: Answer, options: KafkaOptions, keys: str, name: str) -> None:
    await publish(options, keys, dispatched(keys, 1))
    ran = ask("replay", "--pool", "demo", *SPAN, "--id", name, input="n\n")
    assert ran.exit_code == exits.FAILED
    assert "1 (1 dispatches)" in ran.stdout
    assert "Create 1 jobs" in ran.stderr
    assert replayed(ask_json, name) == []


async def test_a_replay_stops_when_too_many_fail(
    ask: Run, ask_json: Answer, options: KafkaOptions, keys: str, name: str
) -> None:
    await publish(options, keys, *(dispatched(keys, {"times": 9}, handler="demo.fail") for _ in range(60)))
    ran = ask("replay", "--pool", "demo", *SPAN, "--id", name, "--rate", "10", "--stop-after-failures", "2", "--yes")
    assert ran.exit_code == exits.FAILED
    assert "stopped: replayed" in ran.stderr
    assert 3 <= len(replayed(ask_json, name)) < 60


async def test_a_replay_keeps_to_its_rate(ask_json: Answer, options: KafkaOptions, keys: str, name: str) -> None:
    await publish(options, keys, *(dispatched(keys, n) for n in range(30)))
    began = time.monotonic()
    ask_json("replay", "--pool", "demo", *SPAN, "--id", name, "--rate", "20", "--yes", "--json")
    assert time.monotonic() - began >= 1.4


async def test_dispatches_that_the_keys_cannot_decrypt_are_counted_and_skipped(
    ask_json: Answer, options: KafkaOptions, keys: str, name: str
) -> None:
    await publish(
        options, keys, dispatch(tenant="default", pool="demo", payload=b"of another key"), dispatched(keys, 1)
    )
    made = ask_json("replay", "--pool", "demo", *SPAN, "--id", name, "--yes", "--json")
    assert (made["created"], made["unreadable"]) == (1, 1)


def test_a_span_that_ends_before_it_begins_is_refused(ask: Run) -> None:
    ran = ask("replay", "--pool", "demo", "--from", "-1h", "--to", "-2h", "--dry-run")
    assert (ran.exit_code, "is not after --from" in ran.stderr) == (exits.FAILED, True)
