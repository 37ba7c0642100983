from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonday.model.errors import BadKey, Conflict, Flaw, InvalidInput
from noonday.model.job import Concurrency, JobSpec, JobType, Overlap, Target, instant_of, rule_of
from noonday.model.redaction import REDACTED
from noonday.model.retry import Backoff, RetryPolicy
from noonday.model.tasks.wire import DAYS_LONG_MS, TaskPatch, TaskPayload, TaskRetry, TaskSpec, TaskType
from noonday.tasks.phrases import ALLOWED
from noonday.tasks.translating import as_task_flaws, patched, task_of, to_job_spec
from noonday.webhooks.judging import JudgingSettings
from noonday.webhooks.sending import WebhookCall
from tests.support import factories
from tests.support.factories import MINUTE, NOW_MS
from tests.tasks.requests import LATER, URL, decoded, once


def refused(spec: TaskSpec) -> dict[str, Flaw]:
    with pytest.raises(InvalidInput) as refusal:
        to_job_spec(spec, NOW_MS)
    assert refusal.value.detail
    return {flaw.pointer: flaw for flaw in refusal.value.flaws}


class TestFromATaskToItsJob:
    def test_the_example_of_a_daily_report(self) -> None:
        task = decoded(
            name="Daily Report",
            payload={"webhook_url": URL, "method": "POST", "body": {"report_type": "daily"}},
            cron_expression="0 8 * * *",
            end_date="2031-12-31T00:00:00Z",
        )
        assert to_job_spec(task, NOW_MS) == JobSpec(
            type=JobType.CRON,
            target=Target("webhooks", "webhook.call", "https://api.example.com:443"),
            name="Daily Report",
            payload={"webhook_url": URL, "method": "POST", "headers": {}, "body": {"report_type": "daily"}},
            schedule="0 8 * * *",
            end_at=datetime(2031, 12, 31, tzinfo=UTC),
            retry_policy=RetryPolicy(max_attempts=5, backoff=Backoff.EXPONENTIAL),
            timeout_sec=30,
        )

    def test_once(self) -> None:
        job = to_job_spec(once(timeout_seconds=5), NOW_MS)
        assert (job.type, job.run_at, job.timeout_sec) == (JobType.ONE_TIME, LATER, 5)

    def test_an_interval_of_real_time_counts_from_creation(self) -> None:
        now_ms = NOW_MS + 7 * MINUTE + 123
        job = to_job_spec(decoded(interval="every 15 minutes"), now_ms)
        assert job.type is JobType.INTERVAL
        assert rule_of(job, now_ms).next_after(now_ms) == now_ms + 15 * MINUTE

    def test_an_interval_of_the_calendar_is_cron_in_the_zone(self) -> None:
        job = to_job_spec(decoded(interval="daily at 08:00", timezone="Asia/Tokyo"), NOW_MS)
        assert (job.type, job.schedule, job.timezone) == (JobType.CRON, "0 8 * * *", "Asia/Tokyo")

    def test_an_instant_without_an_offset_is_wall_time_in_the_zone(self) -> None:
        job = to_job_spec(once(scheduled_at="2030-07-01T09:00:00", timezone="America/New_York"), NOW_MS)
        assert job.run_at == datetime(2030, 7, 1, 13, tzinfo=UTC)
        ends = to_job_spec(decoded(end_date="2030-07-01T09:00:00", timezone="America/New_York"), NOW_MS)
        assert ends.end_at == job.run_at

    def test_a_wall_time_that_the_clocks_skip_is_an_hour_later(self) -> None:
        job = to_job_spec(once(scheduled_at="2030-03-31T02:30:00", timezone="Europe/Berlin"), NOW_MS)
        assert job.run_at == datetime(2030, 3, 31, 1, 30, tzinfo=UTC)

    @pytest.mark.parametrize(
        ("retry", "policy"),
        [
            ({}, RetryPolicy(5, Backoff.EXPONENTIAL)),
            ({"max_attempts": 3}, RetryPolicy(3, Backoff.EXPONENTIAL)),
            (
                {"backoff": "FIXED", "initial_delay_ms": 7_200_000},
                RetryPolicy(5, Backoff.FIXED, initial_delay_ms=7_200_000, max_delay_ms=7_200_000),
            ),
            ({"delays_ms": [100, 200]}, RetryPolicy(5, Backoff.LIST, (100, 200))),
            ({"delays_ms": [100] * 8}, RetryPolicy(9, Backoff.LIST, (100,) * 8)),
            ({"backoff": "LIST"}, RetryPolicy(10, Backoff.LIST, DAYS_LONG_MS)),
            ({"backoff": "LIST", "max_attempts": 2}, RetryPolicy(2, Backoff.LIST, DAYS_LONG_MS)),
        ],
    )
    def test_retries(self, retry: dict[str, Any], policy: RetryPolicy) -> None:
        assert to_job_spec(decoded(retry=retry), NOW_MS).retry_policy == policy

    def test_the_days_long_list_is_that_of_standard_webhooks(self) -> None:
        seconds = [5, 5 * 60, 30 * 60, *(hours * 3600 for hours in (2, 5, 10, 14, 20, 24))]
        assert [wait / 1000 for wait in DAYS_LONG_MS] == seconds

    def test_retried_statuses_are_stored_beside_the_call(self) -> None:
        job = to_job_spec(decoded(retry={"statuses": [503, 409, 409]}), NOW_MS)
        assert msgspec.convert(job.payload, WebhookCall).judging.retried_statuses == {409, 503}
        task = task_of(job)
        assert task.retry.statuses == (409, 503)
        assert task.payload == TaskPayload(webhook_url=URL)

    def test_empty_statuses_differ_from_default_statuses(self) -> None:
        job = to_job_spec(decoded(retry={"statuses": []}), NOW_MS)
        assert msgspec.convert(job.payload, WebhookCall).judging.retried_statuses == frozenset()
        assert task_of(job).retry.statuses == ()
        unsaid = to_job_spec(decoded(), NOW_MS)
        assert msgspec.convert(unsaid.payload, WebhookCall).judging == JudgingSettings()

    def test_calls_in_order_wait_for_each_other(self) -> None:
        assert to_job_spec(decoded(ordered=True), NOW_MS).overlap is Overlap.BUFFER_ALL
        assert to_job_spec(decoded(), NOW_MS).overlap is Overlap.ALLOW

    @pytest.mark.parametrize("task", [decoded(ordering_key="customer-42"), once(ordering_key="customer-42")])
    def test_calls_of_different_tasks_in_order_share_a_key(self, task: TaskSpec) -> None:
        job = to_job_spec(task, NOW_MS)
        assert job.concurrency == Concurrency("customer-42", 1, ordered=True)
        assert task_of(job).ordering_key == "customer-42"
        plain = msgspec.structs.replace(job, concurrency=Concurrency("customer-42", 1))
        assert task_of(plain).ordering_key is None


class TestRefusals:
    def test_status_that_cannot_be_retried_is_refused_with_its_pointer(self) -> None:
        flaws = refused(decoded(retry={"statuses": [409, 410, 200, 600]}))
        assert list(flaws) == ["/retry/statuses/1", "/retry/statuses/2", "/retry/statuses/3"]
        assert "stops the task" in flaws["/retry/statuses/1"].detail
        assert flaws["/retry/statuses/2"].allowed == "300 to 599, but not 410"

    @pytest.mark.parametrize("key", ["", "x" * 201, "a\nb"])
    def test_invalid_ordering_key_is_refused_with_its_pointer(self, key: str) -> None:
        flaw = refused(once(ordering_key=key))["/ordering_key"]
        assert (flaw.value, "1 to 200 characters" in flaw.detail) == (key, True)

    def test_one_time_task_cannot_be_ordered(self) -> None:
        flaw = refused(once(ordered=True))["/ordered"]
        assert "RECURRING" in flaw.detail
        to_job_spec(once(ordered=False), NOW_MS)

    @pytest.mark.parametrize(
        ("fields", "pointers"),
        [
            ({"type": "ONE_TIME"}, ["/scheduled_at"]),
            ({"type": "ONE_TIME", "scheduled_at": "2029-12-31T00:00:00Z"}, ["/scheduled_at"]),
            ({"type": "ONE_TIME", "scheduled_at": "2030-12-31T00:00:00"}, ["/scheduled_at"]),
            ({"type": "ONE_TIME", "scheduled_at": "9999-12-31T00:00:00Z"}, ["/scheduled_at"]),
            (
                {"type": "ONE_TIME", "scheduled_at": "2030-12-31T00:00:00", "timezone": "Mars"},
                ["/scheduled_at", "/timezone"],
            ),
            (
                {"type": "ONE_TIME", "scheduled_at": LATER, "cron_expression": "* * * * *", "end_date": LATER},
                ["/cron_expression", "/end_date"],
            ),
            ({"type": "RECURRING"}, ["/cron_expression"]),
            ({"scheduled_at": LATER}, ["/scheduled_at"]),
            ({"cron_expression": "* * * * *", "interval": "hourly"}, ["/interval"]),
            ({"cron_expression": "61 * * * *", "timezone": "Europe/Berln"}, ["/cron_expression", "/timezone"]),
            ({"interval": "evry hour", "timezone": "Europe/Berln"}, ["/interval", "/timezone"]),
            ({"interval": "every hour", "timezone": "Europe/Berln"}, ["/timezone"]),
            ({"end_date": "2031-12-31T00:00:00"}, ["/end_date"]),
            ({"timeout_seconds": 0}, ["/timeout_seconds"]),
            ({"name": ""}, ["/name"]),
            (
                {"retry": {"max_attempts": 0, "initial_delay_ms": -1}},
                ["/retry/initial_delay_ms", "/retry/max_attempts"],
            ),
            ({"retry": {"delays_ms": []}}, ["/retry/delays_ms"]),
            ({"retry": {"delays_ms": [-1]}}, ["/retry/delays_ms"]),
            ({"retry": {"delays_ms": [1], "backoff": "FIXED"}}, ["/retry/delays_ms"]),
            ({"retry": {"delays_ms": [1], "initial_delay_ms": 1}}, ["/retry/initial_delay_ms"]),
            (
                {"payload": {"webhook_url": "ftp://x", "headers": {"Host": "x"}}, "name": ""},
                ["/name", "/payload/headers/Host", "/payload/webhook_url"],
            ),
            ({"payload": {"webhook_url": URL, "headers": {"A~b": REDACTED}}}, ["/payload/headers/A~0b"]),
        ],
    )
    def test_every_flaw_points_into_the_task(self, fields: dict[str, Any], pointers: list[str]) -> None:
        assert sorted(refused(decoded(**fields))) == pointers

    def test_each_bad_field_of_a_cron_expression_is_named(self) -> None:
        with pytest.raises(InvalidInput) as refusal:
            to_job_spec(decoded(cron_expression="61 25 * * *"), NOW_MS)
        assert [flaw.pointer for flaw in refusal.value.flaws] == ["/cron_expression"] * 2

    def test_flaws_use_no_field_names_of_jobs(self) -> None:
        past = refused(once(scheduled_at="2029-12-31T00:00:00Z"))["/scheduled_at"]
        assert past.detail.startswith("scheduled_at is more than 60 s in the past")
        every = refused(decoded(cron_expression="@every 5m"))["/cron_expression"]
        assert every.detail.endswith("use the field interval")

    @pytest.mark.parametrize(
        ("spec", "pointer"),
        [(decoded(), "/cron_expression"), (decoded(interval="daily"), "/interval")],
    )
    def test_flaws_of_the_store_point_into_the_task(self, spec: TaskSpec, pointer: str) -> None:
        found = InvalidInput("two", [Flaw("/schedule", "no time to come"), Flaw("/retryPolicy/delaysMs", "long")])
        translated = as_task_flaws(found, spec)
        assert [flaw.pointer for flaw in translated.flaws] == [pointer, "/retry/delays_ms"]

    def test_pointers_into_the_payload_stay(self) -> None:
        found = InvalidInput.of("/payload/headers/X-Trace", "no")
        assert as_task_flaws(found, decoded()).flaws == found.flaws

    @pytest.mark.parametrize(
        "unknown", [{"runAt": 1}, {"payload": {"webhook_url": URL, "url": URL}}, {"retry": {"x": 1}}]
    )
    def test_unknown_fields_are_refused(self, unknown: dict[str, Any]) -> None:
        with pytest.raises(msgspec.ValidationError, match="unknown field"):
            decoded(**unknown)

    @pytest.mark.slow
    @given(
        st.datetimes(timezones=st.none() | st.timezones()),
        st.none() | st.sampled_from(["UTC", "Asia/Tokyo", "America/New_York", "nowhere"]) | st.text(),
        st.text(),
    )
    def test_any_value_is_converted_or_refused(self, instant: datetime, timezone: str | None, text: str) -> None:
        payload = TaskPayload(webhook_url=text)
        for spec in (
            TaskSpec(type=TaskType.ONE_TIME, payload=payload, scheduled_at=instant, timezone=timezone),
            TaskSpec(type=TaskType.RECURRING, payload=payload, interval=text, end_date=instant, timezone=timezone),
            TaskSpec(type=TaskType.RECURRING, payload=payload, cron_expression=text, name=text, end_date=instant),
        ):
            try:
                assert isinstance(to_job_spec(spec, NOW_MS), JobSpec)
            except InvalidInput as refusal:
                assert {flaw.pointer for flaw in refusal.flaws} <= {
                    *("/scheduled_at", "/timezone", "/interval", "/end_date", "/cron_expression", "/name"),
                    "/payload/webhook_url",
                }


retries = st.one_of(
    st.builds(
        TaskRetry,
        max_attempts=st.none() | st.integers(1, 100),
        backoff=st.sampled_from([None, Backoff.EXPONENTIAL, Backoff.FIXED]),
        initial_delay_ms=st.none() | st.integers(0, 86_400_000),
    ),
    st.builds(
        TaskRetry,
        max_attempts=st.none() | st.integers(1, 100),
        backoff=st.sampled_from([None, Backoff.LIST]),
        delays_ms=st.lists(st.integers(0, 1000), min_size=1, max_size=20).map(tuple),
    ),
)
common = {
    "payload": st.builds(
        TaskPayload,
        webhook_url=st.just(URL),
        headers=st.dictionaries(st.from_regex(r"\AX-[A-Za-z]{1,9}\Z"), st.from_regex(r"\A[ -Z]{0,9}\Z"), max_size=2),
        body=st.none() | st.text() | st.dictionaries(st.text(), st.integers(), max_size=2),
    ),
    "name": st.none() | st.just("report"),
    "timezone": st.sampled_from([None, "UTC", "Europe/Berlin"]),
    "retry": retries,
    "timeout_seconds": st.floats(0.5, 300),
}
future = st.integers(NOW_MS, NOW_MS + 10**11).map(instant_of)
tasks = st.one_of(
    st.builds(TaskSpec, type=st.just(TaskType.ONE_TIME), scheduled_at=future, **common),
    st.builds(
        TaskSpec,
        type=st.just(TaskType.RECURRING),
        interval=st.sampled_from(ALLOWED),
        end_date=st.none() | future,
        **common,
    ),
    st.builds(
        TaskSpec, type=st.just(TaskType.RECURRING), cron_expression=st.sampled_from(["0 8 * * *", "@daily"]), **common
    ),
)


class TestThereAndBack:
    @pytest.mark.slow
    @given(tasks)
    def test_task_of_a_job_has_defaults_filled_in(self, task: TaskSpec) -> None:
        back = task_of(to_job_spec(task, NOW_MS))
        assert msgspec.structs.replace(back, retry=task.retry) == task
        for name in ("max_attempts", "backoff", "initial_delay_ms", "delays_ms"):
            assert getattr(task.retry, name) in (None, getattr(back.retry, name))

    @pytest.mark.slow
    @given(tasks)
    def test_the_task_of_a_job_makes_the_same_job(self, task: TaskSpec) -> None:
        job = to_job_spec(task, NOW_MS)
        assert to_job_spec(task_of(job), NOW_MS) == job

    @pytest.mark.slow
    @given(tasks)
    def test_a_stored_job_gives_the_same_task(self, task: TaskSpec) -> None:
        job = to_job_spec(task, NOW_MS)
        stored = msgspec.json.decode(msgspec.json.encode(job), type=JobSpec)
        assert task_of(stored) == task_of(job)

    def test_unreadable_payload_raises_bad_key(self) -> None:
        job = msgspec.structs.replace(to_job_spec(decoded(), NOW_MS), payload={"unreadable": "no key k1"})
        with pytest.raises(BadKey, match="no key k1"):
            task_of(job)

    @pytest.mark.parametrize("payload", [None, [], "x", {}, {"webhook_url": 1}, {"given": 1}])
    def test_job_that_is_not_a_task_is_refused(self, payload: Any) -> None:
        with pytest.raises(Conflict):
            task_of(factories.every(payload=payload))


class TestPatches:
    def test_patch_of_the_status_leaves_the_job_unchanged(self) -> None:
        job = to_job_spec(decoded(), NOW_MS)
        assert patched(job, patch(status="PAUSED"), NOW_MS) is job

    def test_new_cron_expression_replaces_an_interval(self) -> None:
        job = to_job_spec(decoded(interval="every 5 minutes"), NOW_MS)
        new = patched(job, patch(cron_expression="0 9 * * *"), NOW_MS)
        assert new == to_job_spec(decoded(cron_expression="0 9 * * *"), NOW_MS)

    def test_new_interval_replaces_a_cron_expression_and_counts_from_now(self) -> None:
        new = patched(to_job_spec(decoded(), NOW_MS), patch(interval="every 2 hours"), NOW_MS + MINUTE)
        assert new == to_job_spec(decoded(interval="every 2 hours"), NOW_MS + MINUTE - 1)

    def test_a_new_payload_does_not_move_an_interval(self) -> None:
        job = to_job_spec(decoded(interval="every 2 hours"), NOW_MS)
        new = patched(job, patch(payload={"webhook_url": "https://else.example.com"}), NOW_MS + MINUTE)
        assert new.payload["webhook_url"] == "https://else.example.com"
        assert (new.every_sec, new.phase_sec) == (job.every_sec, job.phase_sec)
        assert task_of(new).interval == "every 2 hours"

    def test_a_new_zone_moves_an_interval_of_the_calendar(self) -> None:
        job = to_job_spec(decoded(interval="daily at 08:00"), NOW_MS)
        new = patched(job, patch(timezone="Asia/Tokyo"), NOW_MS)
        assert (new.schedule, new.timezone) == ("0 8 * * *", "Asia/Tokyo")

    def test_ordered_can_be_set_and_removed_and_other_overlaps_stay(self) -> None:
        job = to_job_spec(decoded(), NOW_MS)
        ordered = patched(job, patch(ordered=True), NOW_MS)
        assert ordered.overlap is Overlap.BUFFER_ALL
        assert patched(ordered, patch(name="x"), NOW_MS).overlap is Overlap.BUFFER_ALL
        assert patched(ordered, patch(ordered=False), NOW_MS).overlap is Overlap.ALLOW
        skipping = msgspec.structs.replace(job, overlap=Overlap.SKIP)
        assert patched(skipping, patch(ordered=False), NOW_MS).overlap is Overlap.SKIP
        assert patched(skipping, patch(ordered=True), NOW_MS).overlap is Overlap.BUFFER_ALL

    def test_ordering_key_can_be_set_and_removed_and_other_keys_stay(self) -> None:
        job = to_job_spec(decoded(), NOW_MS)
        ordered = patched(job, patch(ordering_key="a"), NOW_MS)
        assert ordered.ordering_key == "a"
        assert patched(ordered, patch(name="x"), NOW_MS).ordering_key == "a"
        assert patched(ordered, patch(ordering_key="b"), NOW_MS).ordering_key == "b"
        assert patched(ordered, patch(ordering_key=None), NOW_MS).concurrency is None
        plain = msgspec.structs.replace(job, concurrency=Concurrency("k", 3))
        assert patched(plain, patch(ordering_key=None), NOW_MS).concurrency == Concurrency("k", 3)
        assert patched(plain, patch(ordering_key="a"), NOW_MS).ordering_key == "a"

    def test_other_retries_replace_the_statuses_as_well(self) -> None:
        job = to_job_spec(decoded(retry={"statuses": [409]}), NOW_MS)
        assert task_of(patched(job, patch(name="x"), NOW_MS)).retry.statuses == (409,)
        assert task_of(patched(job, patch(retry={"max_attempts": 2}), NOW_MS)).retry.statuses is None

    def test_null_removes_the_end_date(self) -> None:
        job = to_job_spec(decoded(end_date="2031-01-01T00:00:00Z"), NOW_MS)
        assert patched(job, patch(end_date=None), NOW_MS).end_at is None

    def test_another_url_may_be_another_endpoint(self) -> None:
        job = to_job_spec(decoded(), NOW_MS)
        new = patched(job, patch(payload={"webhook_url": "http://else.example.com/x"}), NOW_MS)
        assert new.target.endpoint == "http://else.example.com:80"

    def test_name_retry_and_timeout_can_be_changed(self) -> None:
        job = to_job_spec(decoded(name="old", retry={"max_attempts": 2}), NOW_MS)
        new = patched(job, patch(name=None, retry={"delays_ms": [5]}, timeout_seconds=7), NOW_MS)
        assert (new.name, new.timeout_sec, new.retry_policy) == (None, 7, RetryPolicy(5, Backoff.LIST, (5,)))

    def test_redacted_header_keeps_its_value(self) -> None:
        job = to_job_spec(decoded(payload={"webhook_url": URL, "headers": {"Authorization": "Bearer x"}}), NOW_MS)
        back = {"webhook_url": f"{URL}?v=2", "headers": {"Authorization": REDACTED, "X-New": "1"}}
        new = patched(job, patch(payload=back), NOW_MS)
        assert new.payload["headers"] == {"Authorization": "Bearer x", "X-New": "1"}

    def test_redacted_header_is_not_sent_to_another_endpoint(self) -> None:
        job = to_job_spec(decoded(payload={"webhook_url": URL, "headers": {"Authorization": "Bearer x"}}), NOW_MS)
        back = {"webhook_url": "https://else.example.com", "headers": {"Authorization": REDACTED}}
        with pytest.raises(InvalidInput) as refusal:
            patched(job, patch(payload=back), NOW_MS)
        assert [flaw.pointer for flaw in refusal.value.flaws] == ["/payload/headers/Authorization"]

    def test_patch_keeps_fields_that_tasks_do_not_have(self) -> None:
        job = msgspec.structs.replace(to_job_spec(decoded(), NOW_MS), spread_sec=30, tags=("billing",))
        new = patched(job, patch(cron_expression="0 9 * * *"), NOW_MS)
        assert (new.schedule, new.spread_sec, new.tags) == ("0 9 * * *", 30, ("billing",))

    @pytest.mark.parametrize(
        ("fields", "pointer"),
        [
            ({"cron_expression": None}, "/cron_expression"),
            ({"scheduled_at": LATER}, "/scheduled_at"),
            ({"interval": "sometimes"}, "/interval"),
            ({"cron_expression": "0 9 * * *", "interval": "daily"}, "/interval"),
        ],
    )
    def test_conflicting_patch_is_refused(self, fields: dict[str, Any], pointer: str) -> None:
        with pytest.raises(InvalidInput) as refusal:
            patched(to_job_spec(decoded(), NOW_MS), patch(**fields), NOW_MS)
        assert [flaw.pointer for flaw in refusal.value.flaws] == [pointer]

    @pytest.mark.parametrize("status", ["RUNNING", "COMPLETED", "paused"])
    def test_patch_accepts_only_paused_and_scheduled(self, status: str) -> None:
        with pytest.raises(msgspec.ValidationError):
            patch(status=status)


def patch(**fields: Any) -> TaskPatch:
    return msgspec.json.decode(msgspec.json.encode(fields), type=TaskPatch)
