"""Kubernetes CronJobs as jobs of `shell.run`."""

from collections.abc import Iterator, Mapping
from typing import Any

from noonday.cli.importing.imported import DAY_SEC, SHELL_TARGET, Imported, payload_of
from noonday.model.errors import InvalidInput
from noonday.model.job import CatchUp, CatchUpPolicy, Overlap
from noonday.model.retry import RetryPolicy
from noonday.model.shell import ShellCommand

_OVERLAPS = {"Allow": Overlap.ALLOW, "Forbid": Overlap.SKIP, "Replace": Overlap.CANCEL_OTHER}
_CRON_FIELDS = {"schedule", "timeZone", "concurrencyPolicy", "startingDeadlineSeconds", "suspend", "jobTemplate"}
_JOB_FIELDS = {"backoffLimit", "activeDeadlineSeconds", "template"}
_POD_FIELDS = {"containers", "restartPolicy"}
_CONTAINER_FIELDS = {"name", "image", "command", "args", "env", "workingDir"}
BACKOFF_LIMIT = 6
"""The default of Kubernetes."""


def read_cronjobs(documents: list[Any], timezone: str) -> Imported:
    """Return the CronJobs of YAML documents. Other kinds are noted."""
    imported = Imported()
    for each in _objects(documents):
        kind, name = each.get("kind"), _map(each, "metadata").get("name", "cronjob")
        if kind == "CronJob":
            _CronJob(imported, str(name), _map(each, "spec"), timezone).add()
        else:
            imported.note(str(name), f"kind {kind}: not carried over")
    return imported


def _objects(documents: list[Any]) -> Iterator[Mapping[str, Any]]:
    for each in documents:
        if not isinstance(each, dict):
            raise InvalidInput(f"expected Kubernetes objects, found {type(each).__name__}")
        yield from each.get("items") or [] if each.get("kind") == "List" else [each]


def _map(of: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = of.get(name)
    return value if isinstance(value, dict) else {}


class _CronJob:
    """One CronJob, while it is translated."""

    def __init__(self, imported: Imported, name: str, spec: Mapping[str, Any], timezone: str) -> None:
        self._imported = imported
        self._name = name
        self._spec = spec
        self._timezone = timezone
        self._job = _map(_map(spec, "jobTemplate"), "spec")
        self._pod = _map(_map(self._job, "template"), "spec")

    def add(self) -> None:
        command = self._command()
        if command is None:
            return
        for fields, known in ((self._spec, _CRON_FIELDS), (self._job, _JOB_FIELDS), (self._pod, _POD_FIELDS)):
            for unknown in sorted(set(fields) - known):
                self._note(f"{unknown}: not carried over")
        timezone = str(self._spec.get("timeZone") or self._timezone)
        if "timeZone" not in self._spec:
            self._note(f"no timeZone: the controller's zone is unknown here; {timezone} is assumed")
        name = self._imported.add_cron(
            self._name, self._name, str(self._spec.get("schedule")), timezone, SHELL_TARGET, payload_of(command),
            **self._policies(),
        )  # fmt: skip
        if name is not None and self._spec.get("suspend"):
            self._imported.paused.append(name)
            self._note(f"suspend: --create pauses the job; after `noonday job apply`, run `noonday job pause {name}`")

    def _policies(self) -> dict[str, Any]:
        policies: dict[str, Any] = {"catch_up": CatchUp(policy=CatchUpPolicy.LATEST), "timeout_sec": DAY_SEC}
        policy = self._spec.get("concurrencyPolicy", "Allow")
        policies["overlap"] = _OVERLAPS.get(policy, Overlap.ALLOW)
        if policy not in _OVERLAPS:
            self._note(f"concurrencyPolicy {policy}: unknown; ALLOW is used")
        if "startingDeadlineSeconds" in self._spec:
            policies["start_deadline_sec"] = self._spec["startingDeadlineSeconds"]
        if "activeDeadlineSeconds" in self._job:
            policies["timeout_sec"] = self._job["activeDeadlineSeconds"]
            self._note("activeDeadlineSeconds limits all attempts together; timeoutSec limits each attempt")
        policies["retry_policy"] = RetryPolicy(max_attempts=1 + int(self._job.get("backoffLimit", BACKOFF_LIMIT)))
        return policies

    def _command(self) -> ShellCommand | None:
        containers = self._pod.get("containers") or []
        if len(containers) != 1:
            self._note(f"not carried over: it has {len(containers)} containers; a job runs one command")
            return None
        container = containers[0]
        words = [str(word) for word in (*(container.get("command") or ()), *(container.get("args") or ()))]
        if not container.get("command"):
            self._note("not carried over: the container has no command, and that of its image is unknown here")
            return None
        self._note(f"image {container.get('image')}: the command runs on the worker's machine, not in the image")
        if any("$(" in word for word in words):
            self._note("$(NAME) in the command is replaced by Kubernetes, and not here")
        for name in sorted(set(container) - _CONTAINER_FIELDS):
            self._note(f"containers[0].{name}: not carried over")
        return ShellCommand(argv=tuple(words), env=self._env(container), cwd=container.get("workingDir"))

    def _env(self, container: Mapping[str, Any]) -> dict[str, str]:
        found = {}
        for each in container.get("env") or []:
            if "value" in each:
                found[each["name"]] = str(each["value"])
            else:
                self._note(f"env {each.get('name')}: not carried over: its value is in the cluster (valueFrom)")
        return found

    def _note(self, text: str) -> None:
        self._imported.note(self._name, text)
