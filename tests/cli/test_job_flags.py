from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

from noonday.cli.job_flags import PLACES, in_flags, members_of, patch_of, pool_of, read_json, spec_of
from noonday.cli.jobs import create
from noonday.model.errors import InvalidInput
from noonday.model.job import CatchUp, CatchUpPolicy, Concurrency, JobSpec, JobType, Overlap, Target
from noonday.model.retry import RetryPolicy
from noonday.model.view import HandlerView, PoolSettings, PoolView


def leaves(kind: Any, path: str = "") -> Iterator[str]:
    """The pointers of all values in a struct, with wire names."""
    for field in msgspec.structs.fields(kind):
        inner = _struct_in(field.type)
        place = f"{path}{field.encode_name}"
        if inner is None or place == "concurrency":
            yield place
        else:
            yield from leaves(inner, f"{place}.")


def _struct_in(annotation: Any) -> Any:
    candidates = [annotation, *getattr(annotation, "__args__", ())]
    return next((one for one in candidates if isinstance(one, type) and issubclass(one, msgspec.Struct)), None)


def test_every_field_of_a_job_has_a_flag() -> None:
    assert set(PLACES.values()) == set(leaves(JobSpec)) - {"type", "target.endpoint"}


def test_every_flag_of_create_has_its_field_in_a_job() -> None:
    assert isinstance(create, click.Command)
    own = {"file", "idempotency_key", "as_json", "url", "token", "data", "config"}
    assert {parameter.name for parameter in create.params} - own == set(PLACES)


def flags(**given: str) -> dict[str, Any]:
    """The flags that click makes of a command line."""
    words = [word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", value)]
    assert isinstance(create, click.Command)
    context = create.make_context("create", words)
    return {name: value for name, value in context.params.items() if name in PLACES}


def spec(**given: str) -> JobSpec:
    return spec_of(members_of(flags(handler="h", pool="p", **given), None))


def test_patch_has_the_given_flags_alone() -> None:
    assert patch_of(flags(name="x", window="2h"), None) == {"name": "x", "catchUp": {"windowSec": 7200}}


def test_patch_of_the_timing_removes_the_former_one() -> None:
    patch = patch_of(flags(cron="0 3 * * *"), None)
    assert (patch["type"], patch["schedule"]) == ("CRON", "0 3 * * *")
    assert {name for name, value in patch.items() if value is None} == {"runAt", "delaySec", "everySec", "phaseSec"}


def test_patch_replaces_the_whole_payload() -> None:
    patch = patch_of(flags(payload='{"a": {"b": 1}}'), {"a": {"c": 2}, "d": 3})
    assert patch == {"payload": {"a": {"b": 1, "c": None}, "d": None}}
    with pytest.raises(click.BadParameter, match="cannot set a member to null"):
        patch_of(flags(payload='{"a": null}'), None)


def test_concurrency_without_ordered_ends_the_order() -> None:
    assert patch_of(flags(concurrency="k=2"), None) == {"concurrency": {"key": "k", "limit": 2, "ordered": False}}


def test_without_a_timing_a_job_runs_now() -> None:
    assert spec() == JobSpec(type=JobType.ONE_TIME, target=Target("p", "h"))


@pytest.mark.parametrize(
    ("given", "kind"),
    [({"at": "2030-01-01T00:00:00Z"}, JobType.ONE_TIME), ({"delay": "5m"}, JobType.DELAYED),
     ({"cron": "@daily"}, JobType.CRON), ({"every": "1h"}, JobType.INTERVAL)],
)  # fmt: skip
def test_the_timing_makes_the_type(given: dict[str, str], kind: JobType) -> None:
    assert spec(**given).type is kind


def test_durations_become_the_unit_of_their_field() -> None:
    made = spec(every="1h", timeout="90", retry_delays="1s,500ms", window="2d")
    assert (made.every_sec, made.timeout_sec, made.catch_up.window_sec) == (3600, 90, 172_800)
    assert made.retry_policy == RetryPolicy(delays_ms=(1000, 500))


def test_enum_values_may_be_lower_case() -> None:
    made = spec(cron="@daily", overlap="buffer_one", catch_up="none")
    assert (made.overlap, made.catch_up) == (Overlap.BUFFER_ONE, CatchUp(policy=CatchUpPolicy.NONE))


def test_a_concurrency_key_may_have_an_equals_sign() -> None:
    made = spec(concurrency="a=b=3")
    assert made.concurrency is not None
    assert (made.concurrency.key, made.concurrency.limit) == ("a=b", 3)


def test_a_concurrency_key_may_be_an_order() -> None:
    assert spec(concurrency="a=b=ordered").concurrency == Concurrency("a=b", 1, ordered=True)


@pytest.mark.parametrize("payload", ["null", "0", "[1, 2]", '{"a": null}', '"text"'])
def test_any_json_can_be_the_payload(payload: str) -> None:
    assert spec(payload=payload).payload == msgspec.json.decode(payload)


def test_a_payload_can_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text('{"a": 1}')
    assert spec(payload=f"@{tmp_path}/p.json").payload == {"a": 1}


def test_a_payload_that_is_not_json_is_refused_with_a_hint() -> None:
    with pytest.raises(click.BadParameter, match="a text needs quotes"):
        read_json("hello", "--payload")


def test_two_timings_are_refused() -> None:
    with pytest.raises(click.UsageError, match="--cron and --every are mutually exclusive"):
        spec(cron="@daily", every="1h")


def test_flags_beat_the_file(tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    file.write_text('{"type": "CRON", "schedule": "@daily", "target": {"pool": "p", "handler": "h"}, "name": "old"}')
    made = spec_of(members_of(flags(name="new"), file))
    assert (made.type, made.schedule, made.name) == (JobType.CRON, "@daily", "new")


def test_a_misspelt_field_in_the_file_names_the_nearest() -> None:
    with pytest.raises(InvalidInput) as caught:
        spec_of({"type": "ONE_TIME", "target": {"pool": "p", "handler": "h"}, "nmae": "x"})
    assert caught.value.flaws[0].nearest == "name"


def test_flaws_name_the_flag() -> None:
    refused = in_flags(InvalidInput.of("/retryPolicy/maxAttempts", "must be from 1 to 100", 0))
    assert refused.flaws[0].pointer == "--max-attempts"


def pool(name: str, *handlers: str) -> PoolView:
    views = tuple(
        HandlerView(name=one, schema=None, retry_policy=None, timeout_sec=None, workers=1) for one in handlers
    )
    return PoolView(
        name=name, settings=PoolSettings(), handlers=views, workers=1, capacity=1, queued=0, running=0, due=0
    )


def test_the_pool_follows_from_the_handler_if_only_one_has_it() -> None:
    assert pool_of("b", [pool("p", "a"), pool("q", "b")]) == "q"


def test_a_handler_of_two_pools_needs_the_pool() -> None:
    with pytest.raises(InvalidInput, match="--pool") as caught:
        pool_of("a", [pool("p", "a"), pool("q", "a")])
    assert caught.value.flaws[0].allowed == ["p", "q"]


def test_a_handler_of_no_pool_names_the_nearest() -> None:
    with pytest.raises(InvalidInput) as caught:
        pool_of("demo.ehco", [pool("p", "demo.echo")])
    assert caught.value.flaws[0].nearest == "demo.echo"


def test_unknown_handler_suggests_no_handler_of_a_built_in_pool() -> None:
    with pytest.raises(InvalidInput) as caught:
        pool_of("webhook.cal", [pool("a", "x"), pool("webhooks", "webhook.call")])
    assert (caught.value.flaws[0].allowed, caught.value.flaws[0].nearest) == (["x"], None)
