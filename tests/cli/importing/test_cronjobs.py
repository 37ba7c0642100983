"""Kubernetes CronJobs."""

from typing import Any

import pytest

from noonday.cli.importing.cronjobs import read_cronjobs
from noonday.model.errors import InvalidInput
from noonday.model.job import Overlap


def cronjob(
    *, container: dict[str, Any] | None = None, pod: Any = None, job: Any = None, **spec: Any
) -> dict[str, Any]:
    one = {"name": "main", "image": "busybox", "command": ["/bin/report"], **(container or {})}
    template = {"spec": {"restartPolicy": "Never", "containers": [one], **(pod or {})}}
    job_template = {"spec": {"template": template, **(job or {})}}
    members = {"schedule": "0 3 * * *", "timeZone": "Etc/UTC", "jobTemplate": job_template, **spec}
    return {"kind": "CronJob", "metadata": {"name": "report"}, "spec": members}


def test_a_cronjob_becomes_a_job() -> None:
    container = {"args": ["--day", "1"], "env": [{"name": "A", "value": "b"}], "workingDir": "/srv"}
    found = read_cronjobs(
        [cronjob(container=container, job={"backoffLimit": 2}, startingDeadlineSeconds=60, concurrencyPolicy="Forbid")],
        "UTC",
    )
    (job,) = found.jobs
    assert (job.name, job.schedule, job.timezone, job.overlap) == ("report", "0 3 * * *", "Etc/UTC", Overlap.SKIP)
    assert job.payload == {"argv": ["/bin/report", "--day", "1"], "env": {"A": "b"}, "cwd": "/srv"}
    assert job.retry_policy is not None
    assert (job.retry_policy.max_attempts, job.start_deadline_sec) == (3, 60)
    assert found.notes == ["report: image busybox: the command runs on the worker's machine, not in the image"]


@pytest.mark.parametrize(
    ("policy", "overlap"), [("Allow", Overlap.ALLOW), ("Forbid", Overlap.SKIP), ("Replace", Overlap.CANCEL_OTHER)]
)
def test_concurrency_policies_become_overlap_policies(policy: str, overlap: Overlap) -> None:
    assert read_cronjobs([cronjob(concurrencyPolicy=policy)], "UTC").jobs[0].overlap is overlap


def test_a_suspended_cronjob_is_to_be_paused() -> None:
    assert read_cronjobs([cronjob(suspend=True)], "UTC").paused == ["report"]
    assert read_cronjobs([cronjob(suspend=False)], "UTC").paused == []


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"successfulJobsHistoryLimit": 3}, "successfulJobsHistoryLimit: not carried over"),
        ({"job": {"parallelism": 2}}, "parallelism: not carried over"),
        ({"job": {"activeDeadlineSeconds": 60}}, "activeDeadlineSeconds limits all attempts together"),
        ({"pod": {"volumes": []}}, "volumes: not carried over"),
        ({"container": {"resources": {}}}, "containers[0].resources: not carried over"),
        ({"container": {"env": [{"name": "S", "valueFrom": {}}]}}, "env S: not carried over"),
        ({"container": {"args": ["$(S)"]}}, "$(NAME) in the command is replaced by Kubernetes"),
        ({"timeZone": None, "schedule": "0 0 31 2 *"}, "not carried over: schedule"),
    ],
)
def test_parts_without_an_equal_are_named(changes: Any, note: str) -> None:
    notes = read_cronjobs([cronjob(**changes)], "UTC").notes
    assert any(each.startswith(f"report: {note}") for each in notes), notes


@pytest.mark.parametrize("container", [{"command": None}, {"command": []}])
def test_a_container_without_a_command_is_not_carried_over(container: Any) -> None:
    found = read_cronjobs([cronjob(container=container)], "UTC")
    assert (found.jobs, len(found.notes)) == ([], 1)


def test_lists_and_other_kinds_are_read() -> None:
    found = read_cronjobs([{"kind": "List", "items": [cronjob(), {"kind": "Pod", "metadata": {"name": "p"}}]}], "UTC")
    assert len(found.jobs) == 1
    assert "p: kind Pod: not carried over" in found.notes
    with pytest.raises(InvalidInput, match="expected Kubernetes objects"):
        read_cronjobs([[]], "UTC")
