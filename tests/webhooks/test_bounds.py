"""Tasks that are refused at their creation, because they could never be called."""

import pytest

from noonday.model.errors import InvalidInput
from noonday.model.tasks.wire import TaskPatch, TaskPayload, TaskSpec, TaskType
from noonday.tasks.translating import patched, to_job_spec
from noonday.webhooks.addresses import Networks
from noonday.webhooks.bounds import DEFAULT_BOUNDS, CallBounds
from tests.support.factories import NOW_MS


def task(url: str = "https://api.example.com/x", timeout_seconds: float = 30) -> TaskSpec:
    call = TaskPayload(webhook_url=url)
    return TaskSpec(type=TaskType.RECURRING, interval="daily", payload=call, timeout_seconds=timeout_seconds)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "10.1.2.3:8080",
        "169.254.169.254",
        "192.168.0.1",
        "[::1]",
        "[fd00::1]",
        "[::ffff:10.0.0.1]",
        "0.0.0.0",
    ],
)
def test_private_address_is_refused_at_creation(host: str) -> None:
    with pytest.raises(InvalidInput, match=r"webhooks\.allow_networks") as caught:
        to_job_spec(task(f"http://{host}/"), NOW_MS)
    assert [flaw.pointer for flaw in caught.value.flaws] == ["/payload/webhook_url"]


@pytest.mark.parametrize("host", ["8.8.8.8", "[2606:4700::1111]", "intranet.example", "localhost"])
def test_public_address_and_names_are_accepted(host: str) -> None:
    assert to_job_spec(task(f"http://{host}/"), NOW_MS).target.endpoint is not None


def test_network_that_the_operator_lists_is_accepted() -> None:
    bounds = CallBounds(Networks(["10.0.0.0/8"]))
    assert to_job_spec(task("http://10.1.2.3/"), NOW_MS, bounds).target.endpoint == "http://10.1.2.3:80"


def test_timeout_beyond_the_maximum_is_refused() -> None:
    assert to_job_spec(task(timeout_seconds=300), NOW_MS).timeout_sec == 300
    with pytest.raises(InvalidInput, match=r"webhooks\.max_timeout_sec") as caught:
        to_job_spec(task(timeout_seconds=301), NOW_MS)
    assert [flaw.pointer for flaw in caught.value.flaws] == ["/timeout_seconds"]


def test_older_task_with_a_longer_timeout_can_be_changed() -> None:
    older = to_job_spec(task(timeout_seconds=3_000), NOW_MS, CallBounds(timeout_sec=86_400))
    changed = patched(older, TaskPatch(name="new"), NOW_MS, DEFAULT_BOUNDS)
    assert (changed.name, changed.timeout_sec) == ("new", 300)
