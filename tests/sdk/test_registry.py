import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import get_type_hints

import msgspec
import pydantic
import pytest

from noonday.model.errors import Conflict, InvalidInput
from noonday.model.handler import Mode
from noonday.model.job import CatchUp, CatchUpPolicy, JobSpec, JobType, Overlap, Priority, Target
from noonday.model.job_fields import JobFields
from noonday.model.retry import RetryPolicy
from noonday.sdk.registry import Registry
from noonday.sdk.spec import spec_of

SOON = datetime(2030, 1, 31, 9, tzinfo=UTC)


class Invoice(msgspec.Struct):
    pages: int


class Person(pydantic.BaseModel):
    born: datetime


@pytest.fixture
def app():
    return Registry()


def crunch(ctx, payload: Invoice) -> int:
    return payload.pages


def test_a_decorated_function_is_returned_as_it_was(app):
    def plain(ctx): ...

    assert app.handler(plain) is plain
    assert app.handler("other", pool="p")(plain) is plain
    assert app.cron("0 3 * * *", name="third")(plain) is plain
    assert app.every(60, name="fourth")(plain) is plain


def test_a_bare_decorator_takes_the_functions_name_and_the_default_pool(app):
    @app.handler
    async def generate_invoices(ctx): ...

    handler = app.handlers["default", "generate_invoices"]
    assert handler.call is generate_invoices


def test_handler_has_all_options_of_its_decorator_and_signature(app):
    retry = RetryPolicy(max_attempts=2)

    @app.handler("invoices", pool="batch-etl", timeout=timedelta(minutes=10), retry=retry)
    async def generate(ctx, payload: Invoice) -> None:
        """Make invoices."""

    handler = app.handlers["batch-etl", "invoices"]
    assert handler.timeout_sec == 600
    assert handler.retry_policy is retry
    assert handler.doc == "Make invoices."
    assert handler.decode(b'{"pages": 1}') == Invoice(1)
    assert handler.encode is None
    assert handler.info().schema["$defs"]["Invoice"]["required"] == ["pages"]


def test_mode_of_a_handler_follows_from_its_function(app):
    @app.handler
    async def on_the_loop(ctx): ...

    @app.handler
    def in_a_thread(ctx): ...

    app.handler(process=True)(crunch)

    modes = {name: handler.mode for (_, name), handler in app.handlers.items()}
    assert modes == {"on_the_loop": Mode.ASYNC, "in_a_thread": Mode.THREAD, "crunch": Mode.PROCESS}


def test_a_process_takes_no_coroutine_function(app):
    async def coroutine(ctx): ...

    with pytest.raises(InvalidInput, match="coroutine is `async def`: expected a plain `def`"):
        app.handler(process=True)(coroutine)


def test_a_process_takes_no_function_that_it_could_not_import(app):
    def local(ctx): ...

    for function in (local, lambda ctx: None):
        with pytest.raises(InvalidInput, match="cannot be imported by another process"):
            app.handler("it", process=True)(function)


def test_a_second_handler_of_the_same_name_and_pool_is_refused(app):
    app.handler("same", pool="a")(crunch)
    app.handler("same", pool="b")(crunch)

    with pytest.raises(Conflict, match=r"pool a has two handlers same: .*crunch and .*crunch"):
        app.handler("same", pool="a")(crunch)


def yielding(ctx):
    yield


async def yielding_too(ctx):
    yield


@pytest.mark.parametrize("function", [yielding, yielding_too])
def test_generator_is_no_handler(app, function):
    with pytest.raises(InvalidInput, match=f"{function.__name__} yields"):
        app.handler(function)


@pytest.mark.parametrize("thing", [Invoice, print])
def test_object_that_is_no_function_is_no_handler(app, thing):
    with pytest.raises(InvalidInput, match="expected a function"):
        app.handler(thing)


@pytest.mark.parametrize(
    ("options", "pointer"),
    [
        ({"name": "no spaces"}, "/target/handler"),
        ({"pool": ""}, "/target/pool"),
        ({"timeout": -1}, "/timeoutSec"),
        ({"retry": RetryPolicy(max_attempts=0)}, "/retryPolicy/maxAttempts"),
        ({"timeout": "10"}, "/timeout"),
    ],
)
def test_invalid_handler_option_is_refused_at_registration(app, options, pointer):
    with pytest.raises(InvalidInput) as caught:
        app.handler(**options)(crunch)

    assert [flaw.pointer for flaw in caught.value.flaws] == [pointer]
    assert not app.handlers


def test_a_cron_is_a_handler_and_a_declared_job(app):
    @app.cron("0 3 * * *", timezone="America/Los_Angeles", name="daily", pool="batch", timeout=60)
    async def nightly(ctx): ...

    assert app.handlers["batch", "daily"].timeout_sec == 60
    assert app.declared == [
        JobSpec(
            type=JobType.CRON,
            target=Target("batch", "daily"),
            name="daily",
            unique_key="code:daily",
            schedule="0 3 * * *",
            timezone="America/Los_Angeles",
        )
    ]


def test_an_interval_is_a_handler_and_a_declared_job(app):
    @app.every(timedelta(minutes=5), phase_sec=30)
    def sweep(ctx): ...

    assert ("default", "sweep") in app.handlers
    [spec] = app.declared
    assert (spec.type, spec.every_sec, spec.phase_sec) == (JobType.INTERVAL, 300, 30)
    assert (spec.name, spec.unique_key, spec.timezone) == ("sweep", "code:sweep", None)


def test_declared_job_has_the_given_fields(app):
    app.cron(
        "@hourly",
        payload=Invoice(4),
        overlap=Overlap.SKIP,
        catch_up=CatchUp(CatchUpPolicy.NONE),
        priority="HIGH",
        start_at=SOON,
        spread_sec=timedelta(seconds=90),
        tags=["a", "b"],
    )(crunch)

    [spec] = app.declared
    assert spec.payload == {"pages": 4}
    assert spec.overlap is Overlap.SKIP
    assert spec.catch_up == CatchUp(CatchUpPolicy.NONE)
    assert spec.priority is Priority.HIGH
    assert spec.start_at == SOON
    assert spec.spread_sec == 90
    assert spec.tags == ("a", "b")


def test_a_bad_cron_raises_where_it_is_declared_and_leaves_nothing(app):
    with pytest.raises(InvalidInput, match=r"test_registry\.crunch: /schedule: .*61") as caught:
        app.cron("61 * * * *", payload=Invoice(1))(crunch)

    assert caught.value.flaws[0].pointer == "/schedule"
    assert not app.handlers
    assert not app.declared


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"timezone": "Europe/Osloo"}, "/timezone"),
        ({"payload": {"pages": "x"}}, r"\$\.pages"),
        ({}, "got `null`"),
        ({"payload": Invoice(1), "overlap": "SOMETIMES"}, "overlap must be one of ALLOW, SKIP, .*, not 'SOMETIMES'"),
        ({"payload": Invoice(1), "spreadsec": 3}, "did you mean spread_sec"),
        ({"payload": Invoice(1), "unique_key": "x"}, "unknown field unique_key"),
    ],
)
def test_a_declaration_that_cannot_be_is_refused(app, fields, message):
    with pytest.raises(InvalidInput, match=message):
        app.cron("* * * * *", **fields)(crunch)


@pytest.mark.parametrize("decorator", ["cron", "every"])
def test_a_schedule_that_is_forgotten_is_noticed(app, decorator):
    with pytest.raises(InvalidInput, match="must be"):
        getattr(app, decorator)(crunch)


def test_names_of_declared_jobs_are_unique_across_pools(app):
    app.every(60, pool="a", payload=Invoice(1))(crunch)

    with pytest.raises(Conflict, match="two declared jobs are named crunch"):
        app.every(60, pool="b", payload=Invoice(1))(crunch)
    assert list(app.handlers) == [("a", "crunch")]


def test_a_function_can_have_several_schedules(app):
    @app.cron("0 3 * * *", name="night")
    @app.cron("0 15 * * *", name="day")
    def report(ctx): ...

    assert [spec.unique_key for spec in app.declared] == ["code:day", "code:night"]


def test_an_included_registry_brings_handlers_and_jobs(app):
    other = Registry()
    other.handler(crunch)
    other.every(60, name="often", payload=Invoice(1))(crunch)

    app.include(other)
    app.include(other)

    assert list(app.handlers) == [("default", "crunch"), ("default", "often")]
    assert [spec.name for spec in app.declared] == ["often"]


def test_an_include_that_clashes_takes_nothing(app):
    app.handler("b")(crunch)
    other = Registry()
    other.handler("a")(crunch)
    other.handler("b")(crunch)

    with pytest.raises(Conflict):
        app.include(other)
    assert list(app.handlers) == [("default", "b")]


def test_a_job_without_a_timing_runs_now_in_the_handlers_pool(app):
    app.handler(pool="batch")(crunch)

    spec = app.spec_for("crunch", Invoice(2))

    assert spec == JobSpec(type=JobType.ONE_TIME, target=Target("batch", "crunch"), payload={"pages": 2})
    assert app.spec_for(crunch, Invoice(2)) == spec


@pytest.mark.parametrize(
    ("timing", "type_", "fields"),
    [
        ({"at": SOON}, JobType.ONE_TIME, {"run_at": SOON}),
        ({"delay": 1.5}, JobType.DELAYED, {"delay_sec": 1.5}),
        ({"delay": timedelta(minutes=1)}, JobType.DELAYED, {"delay_sec": 60}),
        ({"cron": "@daily"}, JobType.CRON, {"schedule": "@daily"}),
        (
            {"cron": "@daily", "timezone": "Asia/Tokyo"},
            JobType.CRON,
            {"schedule": "@daily", "timezone": "Asia/Tokyo"},
        ),
        ({"every": 30}, JobType.INTERVAL, {"every_sec": 30}),
    ],
    ids=repr,
)
def test_each_timing_makes_its_type_of_job(app, timing, type_, fields):
    spec = app.spec_for("remote", pool="p", **timing)

    assert spec == JobSpec(type=type_, target=Target("p", "remote"), **fields)


def test_two_timings_are_refused(app):
    with pytest.raises(InvalidInput, match="delay and every cannot be combined"):
        app.spec_for("remote", pool="p", delay=1, every=2)


def test_a_zone_without_a_cron_is_refused(app):
    with pytest.raises(InvalidInput, match="timezone is allowed with cron only"):
        app.spec_for("remote", pool="p", at=SOON, timezone="Asia/Tokyo")


def test_a_jobs_own_fields_are_taken_over(app):
    spec = app.spec_for("remote", pool="p", name="mine", unique_key="k", timeout=timedelta(minutes=1), max_runs=3)

    assert (spec.name, spec.unique_key, spec.timeout_sec, spec.max_runs) == ("mine", "k", 60, 3)


def test_every_field_that_is_wrong_is_named(app):
    with pytest.raises(InvalidInput, match="unknown field timeout_sec; did you mean timeout") as caught:
        app.spec_for("remote", pool="p", timeout_sec=3, max_runs="many")

    assert {flaw.pointer: flaw.nearest for flaw in caught.value.flaws} == {"/timeout_sec": "timeout", "/max_runs": None}


def test_the_payload_of_a_known_handler_is_checked_at_once(app):
    app.handler(crunch)

    with pytest.raises(InvalidInput, match=r"Expected `int`, got `str` - at `\$\.pages`"):
        app.spec_for("crunch", {"pages": "two"})
    with pytest.raises(InvalidInput, match="got `null`"):
        app.spec_for("crunch")


def test_a_handler_without_payload_is_given_none(app):
    @app.handler
    def lonely(ctx): ...

    assert app.spec_for("lonely").payload is None
    with pytest.raises(InvalidInput, match="handler lonely takes no payload"):
        app.spec_for("lonely", {"a": 1})


def test_a_pydantic_payload_goes_out_as_plain_json(app):
    @app.handler
    def greet(ctx, payload: Person): ...

    assert app.spec_for(greet, Person(born=SOON)).payload == {"born": "2030-01-31T09:00:00Z"}


def test_an_unknown_handler_without_a_pool_is_refused_with_the_nearest_name(app):
    app.handler(crunch)

    with pytest.raises(InvalidInput, match="did you mean crunch") as caught:
        app.spec_for("crnch")
    [flaw] = caught.value.flaws
    assert (flaw.pointer, flaw.nearest, flaw.allowed) == ("/target/handler", "crunch", ["crunch"])


def test_a_name_known_in_several_pools_needs_its_pool(app):
    app.handler(pool="a")(crunch)
    app.handler(pool="b")(crunch)

    with pytest.raises(InvalidInput, match="several handlers: crunch in pool a, crunch in pool b"):
        app.spec_for("crunch", Invoice(1))
    assert app.spec_for(crunch, Invoice(1), pool="b").target == Target("b", "crunch")


def test_a_function_that_is_no_handler_is_refused(app):
    with pytest.raises(InvalidInput, match="crunch is not a handler of this application in pool p"):
        app.spec_for(crunch, pool="p")


def test_job_can_be_declared_in_fields_alone():
    spec = spec_of(type="CRON", target={"pool": "p", "handler": "h"}, schedule="@daily", catch_up={"policy": "ALL"})

    assert spec == JobSpec(
        type=JobType.CRON, target=Target("p", "h"), schedule="@daily", catch_up=CatchUp(CatchUpPolicy.ALL)
    )


def test_fields_alone_need_a_type_and_a_target():
    with pytest.raises(InvalidInput, match="a job needs type and target"):
        spec_of(schedule="@daily")


def test_typed_fields_are_the_job_fields_without_a_parameter():
    apart = {"type", "target", "name", "payload", "run_at", "delay_sec", "schedule", "timezone", "every_sec"}
    fields = {field.name for field in msgspec.structs.fields(JobSpec)} - apart

    assert set(get_type_hints(JobFields)) == fields - {"retry_policy", "timeout_sec"} | {"retry", "timeout"}


@pytest.mark.slow
def test_declaring_handlers_needs_neither_pydantic_nor_an_http_library():
    program = "import sys, noonday.sdk.registry; print({'pydantic', 'aiohttp'} & set(sys.modules))"

    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert loaded.stdout.strip() == "set()"
