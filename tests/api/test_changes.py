"""PATCH and PUT of a job's definition, and warnings about its name."""

from typing import Any

import pytest

from tests.api.asgi import Client, Response

MERGE_PATCH = "application/merge-patch+json"
CRON = {"type": "CRON", "schedule": "0 3 * * *", "target": {"pool": "demo", "handler": "demo.echo"}}


async def created(client: Client, **fields: Any) -> Response:
    response = await client.post("/v1/jobs", {**CRON, **fields})
    assert response.status == 201
    return response


def warnings(response: Response) -> list[str]:
    """Return the warnings, without the one that no worker runs here."""
    return [warning for warning in response.json["warnings"] if not warning.startswith("no worker")]


async def patched(client: Client, made: Response, patch: Any, **headers: str) -> Response:
    return await client.call("PATCH", made.headers["location"], patch, content_type=MERGE_PATCH, **headers)


async def test_patch_changes_what_it_names_and_nothing_else(client: Client) -> None:
    made = await created(client, name="nightly", payload={"a": 1, "b": {"c": 2}}, catchUp={"policy": "ALL"}, tags=["x"])
    changed = await patched(
        client,
        made,
        {"schedule": "0 4 * * *", "payload": {"b": {"d": 3}, "a": None}, "catchUp": {"windowSec": 60}, "tags": ["y"]},
    )
    assert (changed.status, changed.headers["etag"]) == (200, '"2"')
    assert changed.json["schedule"] == "0 4 * * *"
    assert changed.json["payload"] == {"b": {"c": 2, "d": 3}}
    assert changed.json["catchUp"] == {"policy": "ALL", "windowSec": 60}
    assert (changed.json["name"], changed.json["tags"]) == ("nightly", ["y"])
    assert changed.json["nextFireAt"] == "2030-01-02T04:00:00Z"
    assert (await client.get(made.headers["location"])).json["payload"] == {"b": {"c": 2, "d": 3}}


async def test_null_removes_a_field_so_that_the_type_can_change(client: Client) -> None:
    made = await created(client, timezone="Europe/Berlin")
    refused = await patched(client, made, {"type": "INTERVAL", "everySec": 60})
    assert (refused.status, {flaw["pointer"] for flaw in refused.json["errors"]}) == (422, {"/schedule", "/timezone"})
    changed = await patched(
        client, made, {"type": "INTERVAL", "everySec": 60, "schedule": None, "timezone": None}, idempotency_key="k"
    )
    assert (changed.json["type"], changed.json["schedule"]) == ("INTERVAL", None)


async def test_patch_as_json_is_the_same(client: Client) -> None:
    made = await created(client)
    changed = await client.call("PATCH", made.headers["location"], {"name": "hourly"})
    assert (changed.status, changed.json["name"]) == (200, "hourly")


async def test_body_of_another_media_type_is_refused(client: Client) -> None:
    made = await created(client)
    refused = await client.call("PATCH", made.headers["location"], {"name": "x"}, content_type="text/plain")
    assert (refused.status, refused.code) == (415, "unsupported-media-type")
    put = await client.call("PUT", made.headers["location"], CRON, content_type=MERGE_PATCH)
    assert put.status == 415


async def test_patch_of_another_version_is_refused(client: Client) -> None:
    made = await created(client)
    assert (await patched(client, made, {"name": "x"}, if_match='"2"')).status == 412
    assert (await patched(client, made, {"name": "x"}, if_match='"1"')).status == 200
    assert (await patched(client, made, {"name": "y"}, if_match='"1"')).status == 412


async def test_repeated_patch_gets_the_first_answer_although_its_version_is_gone(client: Client) -> None:
    made = await created(client)
    first = await patched(client, made, {"name": "x"}, if_match='"1"', idempotency_key="k")
    again = await patched(client, made, {"name": "x"}, if_match='"1"', idempotency_key="k")
    assert (again.status, again.body) == (200, first.body)
    assert again.headers["idempotency-replay"] == "true"


async def test_patch_of_a_read_only_field_says_what_to_do_instead(client: Client) -> None:
    made = await created(client)
    refused = await patched(client, made, {"state": "PAUSED"})
    assert (refused.status, refused.flaw["pointer"]) == (422, "/state")
    assert "/pause" in refused.flaw["detail"]


async def test_unknown_field_in_a_patch_is_refused_with_the_nearest_name(client: Client) -> None:
    made = await created(client)
    refused = await patched(client, made, {"shedule": "0 4 * * *"})
    assert (refused.status, refused.flaw["nearest"]) == (422, "schedule")


async def test_patch_that_is_no_object_is_refused(client: Client) -> None:
    made = await created(client)
    assert (await patched(client, made, [1])).status == 422


@pytest.mark.parametrize(
    "fields",
    [
        {
            "payload": {"a": [1, None]},
            "name": "x",
            "concurrency": {"key": "k", "limit": 1},
            "endAt": "2031-01-01T00:00:00Z",
        },
        {"type": "INTERVAL", "everySec": 2.5, "schedule": None, "retryPolicy": {"maxAttempts": 2}},
        {"type": "ONE_TIME", "runAt": "2030-01-01T12:30:00Z", "schedule": None},
    ],
)
async def test_put_of_what_get_returned_is_accepted_and_changes_nothing(client: Client, fields: dict[str, Any]) -> None:
    made = await created(client, **fields)
    shown = (await client.get(made.headers["location"])).json
    put = await client.put(made.headers["location"], shown)
    assert put.status == 200
    assert warnings(put) == []
    changes_itself = {"version", "updatedAt", "executions", "nextFireAt", "warnings"}
    assert {k: v for k, v in put.json.items() if k not in changes_itself} == {
        k: v for k, v in shown.items() if k not in changes_itself
    }


async def test_put_says_which_read_only_values_it_ignored(client: Client) -> None:
    made = await created(client)
    shown = (await client.get(made.headers["location"])).json
    put = await client.put(made.headers["location"], shown | {"state": "PAUSED", "version": 7})
    state, version = warnings(put)
    assert put.json["state"] == "ACTIVE"
    assert state.startswith("ignored state 'PAUSED': it is read-only and was 'ACTIVE'; POST")
    assert version.startswith("ignored version 7: it is read-only and was 1; send If-Match")


async def test_put_of_another_jobs_view_is_refused(client: Client) -> None:
    first, second = await created(client), await created(client)
    refused = await client.put(first.headers["location"], second.json)
    assert (refused.status, refused.flaw["pointer"]) == (422, "/jobId")
    assert (await client.get(first.headers["location"])).json["version"] == 1


async def test_unknown_field_beside_read_only_ones_is_still_refused(client: Client) -> None:
    made = await created(client)
    refused = await client.put(made.headers["location"], made.json | {"shedule": "x"})
    assert (refused.status, refused.flaw["pointer"]) == (422, "/shedule")


async def test_second_job_of_a_name_is_warned_about_the_first(client: Client) -> None:
    first = await created(client, name="nightly")
    assert warnings(first) == []
    second = await created(client, name="nightly")
    (warning,) = warnings(second)
    assert warning.startswith(f"job {first.json['jobId']} is also named 'nightly'")
    other = await created(client, name="hourly")
    (warning,) = warnings(await patched(client, other, {"name": "nightly"}))
    assert first.json["jobId"] in warning
    assert warnings(await patched(client, other, {"name": "hourly"})) == []


async def test_job_that_is_created_again_by_its_unique_key_does_not_clash_with_itself(client: Client) -> None:
    await created(client, name="nightly", uniqueKey="n")
    again = await client.post("/v1/jobs", {**CRON, "name": "nightly", "uniqueKey": "n", "schedule": "0 5 * * *"})
    assert (again.status, again.json["version"], warnings(again)) == (201, 2, [])


async def test_jobs_of_one_batch_are_warned_about_each_other(client: Client) -> None:
    response = await client.post("/v1/jobs/batch", {"jobs": [{**CRON, "name": "nightly"}] * 3})
    first, second, third = response.json["jobs"]
    assert second["jobId"] in first["warnings"][-1]
    assert first["jobId"] in second["warnings"][-1]
    assert first["jobId"] in third["warnings"][-1]


async def test_trigger_without_a_body_runs_the_job_as_it_is(client: Client) -> None:
    made = await created(client)
    assert (await client.post(f"{made.headers['location']}/trigger")).status == 201
    assert (await client.post(f"{made.headers['location']}/trigger", {})).status == 201
    no_body = await client.call("POST", f"{made.headers['location']}/trigger", content_type="application/octet-stream")
    assert no_body.status == 201
    other = await client.call("POST", f"{made.headers['location']}/trigger", b"a=1", content_type="text/plain")
    assert other.status == 415


async def test_trigger_may_have_a_payload_and_pass_the_overlap_rule(client: Client) -> None:
    made = await created(client, overlap="SKIP")
    path = f"{made.headers['location']}/trigger"
    assert (await client.post(path, {"payload": {"a": 1}})).status == 201
    refused = await client.post(path)
    assert (refused.status, refused.code) == (409, "conflict")
    assert (await client.post(path, {"force": True})).status == 201
    wrong = await client.post(path, {"forced": True})
    assert (wrong.status, wrong.flaw["nearest"]) == (422, "force")


async def test_repeated_trigger_with_another_payload_is_refused(client: Client) -> None:
    made = await created(client)
    path = f"{made.headers['location']}/trigger"
    first = await client.post(path, {"payload": 1}, idempotency_key="k")
    again = await client.post(path, {"payload": 1}, idempotency_key="k")
    assert (first.status, again.body) == (201, first.body)
    assert (await client.post(path, {"payload": 2}, idempotency_key="k")).status == 422


async def test_payload_of_a_trigger_over_the_limit_is_413(client: Client) -> None:
    made = await created(client)
    refused = await client.post(f"{made.headers['location']}/trigger", {"payload": "x" * 300_000})
    assert (refused.status, refused.code) == (413, "payload-too-large")


async def test_occurrences_are_skipped_and_shown(client: Client) -> None:
    made = await created(client, timezone="Europe/Berlin")
    path = made.headers["location"]
    skipped = await client.post(f"{path}/skip", {"at": "2030-01-03T02:00:00Z", "reason": "a holiday"})
    assert (skipped.status, skipped.headers["etag"]) == (200, '"2"')
    (one,) = skipped.json["skips"]
    assert (one["at"], one["by"], one["reason"]) == ("2030-01-03T02:00:00Z", "somebody", "a holiday")
    both = await client.post(f"{path}/skip", {"next": 1})
    assert both.json["nextFireAt"] == "2030-01-04T02:00:00Z"
    assert both.json["nextFireAtLocal"] == "2030-01-04T03:00:00+01:00"
    page = await client.get(f"{path}/occurrences?to=2030-01-05T00:00:00Z")
    outcomes = [(each["outcome"], each["reason"]) for each in page.json["occurrences"]]
    assert outcomes == [
        ("SKIPPED", "skipped by somebody"),
        ("SKIPPED", "skipped by somebody: a holiday"),
        ("PLANNED", "planned"),
    ]


async def test_skip_is_undone_at_one_time_or_at_all(client: Client) -> None:
    path = (await created(client)).headers["location"]
    await client.post(f"{path}/skip", {"next": 3})
    left = await client.call("DELETE", f"{path}/skip?at=2030-01-02T03:00:00Z")
    assert [each["at"] for each in left.json["skips"]] == ["2030-01-03T03:00:00Z", "2030-01-04T03:00:00Z"]
    assert (await client.call("DELETE", f"{path}/skip")).json["skips"] == []
    assert (await client.call("DELETE", f"{path}/skip?at=2030-01-02T03:00:00Z")).status == 409


async def test_wrong_skips_are_refused(client: Client) -> None:
    path = (await created(client)).headers["location"]
    assert (await client.post(f"{path}/skip", {})).status == 422
    assert (await client.post(f"{path}/skip", {"next": 101})).flaw["pointer"] == "/next"
    assert (await client.post(f"{path}/skip", {"at": "2030-01-02T03:00:01Z"})).flaw["pointer"] == "/at"
    assert (await client.post(f"{path}/skip", {"next": 1, "reason": "x" * 501})).flaw["pointer"] == "/reason"


async def test_replacement_keeps_the_skips_that_the_new_schedule_has(client: Client) -> None:
    path = (await created(client)).headers["location"]
    await client.post(f"{path}/skip", {"next": 2})
    changed = await client.call("PATCH", path, {"schedule": "0 3 3 1 *"})
    assert [each["at"] for each in changed.json["skips"]] == ["2030-01-03T03:00:00Z"]


async def test_occurrence_is_moved_and_shown_at_both_times(client: Client) -> None:
    path = (await created(client)).headers["location"]
    wanted = {"at": "2030-01-02T03:00:00Z", "to": "2030-01-02T05:30:00Z", "reason": "a window"}
    moved = await client.post(f"{path}/move", wanted)
    assert (moved.status, moved.headers["etag"]) == (200, '"2"')
    (one,) = moved.json["moves"]
    assert {**wanted, "by": "somebody"}.items() <= one.items()
    assert moved.json["nextFireAt"] == "2030-01-02T05:30:00Z"
    page = await client.get(f"{path}/occurrences?to=2030-01-03T00:00:00Z")
    assert [(each["outcome"], each["scheduledAt"], each["reason"]) for each in page.json["occurrences"]] == [
        ("MOVED", "2030-01-02T03:00:00Z", "moved to 2030-01-02T05:30:00.000Z by somebody: a window"),
        (
            "PLANNED",
            "2030-01-02T05:30:00Z",
            "planned; moved from 2030-01-02T03:00:00.000Z by somebody: a window",
        ),
    ]


async def test_wrong_moves_are_refused(client: Client) -> None:
    path = (await created(client)).headers["location"]
    at, to = "2030-01-02T03:00:00Z", "2030-01-02T05:30:00Z"
    assert (await client.post(f"{path}/move", {"at": at})).status == 422
    assert (await client.post(f"{path}/move", {"at": to, "to": at})).flaw["pointer"] == "/at"
    past = await client.post(f"{path}/move", {"at": at, "to": "2029-12-31T00:00:00Z"})
    assert (past.status, past.flaw["pointer"]) == (422, "/to")
    assert "the server's time is 2030-01-01T12:00:00.000Z" in past.flaw["detail"]
    assert (await client.post(f"{path}/move", {"at": at, "to": "2045-01-01T00:00:00Z"})).flaw["pointer"] == "/to"
    assert (await client.post(f"{path}/move", {"at": at, "to": to, "reason": "x" * 501})).flaw["pointer"] == "/reason"
    assert (await client.post(f"{path}/move", {"at": at, "to": "2030-01-03T03:00:00Z"})).status == 409


async def test_one_shot_is_not_moved(client: Client) -> None:
    once = {"type": "ONE_TIME", "runAt": "2030-01-05T00:00:00Z", "target": CRON["target"]}
    made = await client.post("/v1/jobs", once)
    refused = await client.post(
        f"{made.headers['location']}/move", {"at": "2030-01-05T00:00:00Z", "to": "2030-01-06T00:00:00Z"}
    )
    assert refused.status == 409
    assert "with another runAt changes its time" in refused.json["detail"]


async def test_pause_has_an_end_that_another_pause_replaces_and_a_resume_takes_back(client: Client) -> None:
    path = (await created(client)).headers["location"]
    paused = await client.post(f"{path}/pause", {"until": "2030-01-02T06:00:00Z"})
    assert (paused.status, paused.json["state"], paused.json["pausedUntil"]) == (200, "PAUSED", "2030-01-02T06:00:00Z")
    page = await client.get(f"{path}/occurrences?to=2030-01-04T00:00:00Z")
    assert [(each["outcome"], each["reason"]) for each in page.json["occurrences"]] == [
        ("PAUSED", "the job is paused until 2030-01-02T06:00:00.000Z"),
        ("PLANNED", "planned; the job is paused until 2030-01-02T06:00:00.000Z"),
    ]
    later = await client.post(f"{path}/pause", {"until": "2030-01-03T06:00:00Z"})
    assert later.json["pausedUntil"] == "2030-01-03T06:00:00Z"
    assert (await client.post(f"{path}/pause")).json["pausedUntil"] is None
    await client.post(f"{path}/pause", {"until": "2030-01-03T06:00:00Z"})
    resumed = await client.post(f"{path}/resume")
    assert (resumed.json["state"], resumed.json["pausedUntil"]) == ("ACTIVE", None)


@pytest.mark.parametrize("until", ["2029-12-31T00:00:00Z", "2030-01-01T12:00:00Z", "2041-01-01T00:00:00Z", "tomorrow"])
async def test_wrong_end_of_a_pause_is_refused(client: Client, until: str) -> None:
    path = (await created(client)).headers["location"]
    refused = await client.post(f"{path}/pause", {"until": until})
    assert (refused.status, refused.flaw["pointer"]) == (422, "/until")
    if until != "tomorrow":
        assert "the server's time is 2030-01-01T12:00:00.000Z" in refused.flaw["detail"]
    assert (await client.get(path)).json["state"] == "ACTIVE"
