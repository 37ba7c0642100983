"""The jobs that handlers enqueue: `ctx.enqueue`.

They are kept in the worker until the attempt has ended, and travel with its report. So they exist once a success or a snooze is
settled, and never if the attempt has failed, was refused, or was lost with its worker.
"""

import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from noonday.model.child_job import ChildJob, child_of, encode_children
from noonday.model.errors import Conflict, InvalidInput, NoondayError, PayloadTooLarge
from noonday.model.handler import Handler
from noonday.model.ids import JobId
from noonday.model.job import JobSpec, check
from noonday.model.limits import ENQUEUED_BYTES, ENQUEUED_JOBS
from noonday.model.message import Dispatch
from noonday.model.nesting import MOST_LEVELS, is_too_deep
from noonday.runtime.tracing import current_traceparent
from noonday.worker.function_ref import reference_to

HandlersByName = Mapping[tuple[str, str], Handler]


@dataclass(frozen=True)
class Enqueueing:
    """How the handlers of a worker enqueue jobs, and how many."""

    spec_for: Callable[..., JobSpec]
    """Makes a spec from a handler, a payload and the keyword arguments of `enqueue`."""
    now_ms: Callable[[], int]
    handlers: HandlersByName = field(default_factory=dict)
    most_jobs: int = ENQUEUED_JOBS
    most_bytes: int = ENQUEUED_BYTES

    def function_of(self, module: str, name: str) -> Callable[..., Any]:
        """Return the handler's function that another process knows by an import path. Raises InvalidInput."""
        for handler in self.handlers.values():
            try:
                known = reference_to(handler.call)
            except InvalidInput:
                continue  # no other process can know this one
            if (known.module, known.name) == (module, name):
                return handler.call
        raise InvalidInput(f"{module}.{name} is not a handler of this application")


class EnqueuedChild:
    """A job that a handler has enqueued. It may be awaited, which returns it at once."""

    __slots__ = ("job_id", "name")

    def __init__(self, job_id: JobId | None, name: str | None) -> None:
        self.job_id = job_id
        """The id that the job gets. None with a `unique_key`, which another job may have."""
        self.name = name

    def __await__(self) -> Generator[Any, None, "EnqueuedChild"]:
        yield from ()
        return self

    def __repr__(self) -> str:
        return f"EnqueuedChild(job_id={self.job_id!r}, name={self.name!r})"


class Children:
    """The child jobs of one attempt, within their limits. Safe in any thread."""

    def __init__(self, dispatch: Dispatch, enqueueing: Enqueueing) -> None:
        self._dispatch = dispatch
        self._enqueueing = enqueueing
        self._lock = threading.Lock()
        self._children: dict[JobId, ChildJob] = {}
        self._size = 2
        self._why_closed: str | None = None

    def __len__(self) -> int:
        return len(self._children)

    def enqueue(self, handler: str | Callable[..., Any], payload: Any, fields: Mapping[str, Any]) -> EnqueuedChild:
        """Add a job by the arguments of `ctx.enqueue`. Raises InvalidInput, PayloadTooLarge, and Conflict."""
        return self.add(self._enqueueing.spec_for(handler, payload, **fields))

    def enqueue_from_process(
        self, handler: str, module: str | None, payload: Any, fields: Mapping[str, Any]
    ) -> EnqueuedChild:
        """Add a job of a handler in another process, which names a function by its module."""
        target = handler if module is None else self._enqueueing.function_of(module, handler)
        return self.enqueue(target, payload, fields)

    def add(self, spec: JobSpec) -> EnqueuedChild:
        """Add a job by its spec. Raises InvalidInput, PayloadTooLarge, and Conflict."""
        now_ms = self._enqueueing.now_ms()
        check(spec, now_ms)
        with self._lock:
            self._refuse_closed()
            of, position = self._dispatch, len(self._children)
            child = child_of(of.execution_id, of.number, position, spec, now_ms, current_traceparent())
            if not self._has(child):
                self._append(child)
        return EnqueuedChild(child.job_id if spec.unique_key is None else None, spec.name)

    def set_all(self, specs: Sequence[JobSpec]) -> None:
        """Replace the jobs by these, all or none: a repeated answer of a remote worker names them again.

        Raises InvalidInput, PayloadTooLarge, and Conflict.
        """
        others = Children(self._dispatch, self._enqueueing)
        for spec in specs:
            others.add(spec)
        with self._lock:
            self._refuse_closed()
            self._children, self._size = others._children, others._size

    def close(self, why: str) -> None:
        """Accept no further jobs."""
        with self._lock:
            self._why_closed = self._why_closed or why

    def encoded(self) -> bytes | None:
        """Return the child jobs as they travel with the report, before encryption. None if there are none."""
        return encode_children(list(self._children.values())) if self._children else None

    @property
    def specs(self) -> list[JobSpec]:
        return [child.spec for child in self._children.values()]

    def _refuse_closed(self) -> None:
        if self._why_closed is not None:
            raise Conflict(f"ctx.enqueue cannot add a job: {self._why_closed}")

    def _has(self, child: ChildJob) -> bool:
        """Return whether the same job was enqueued before. Raises Conflict if its name was used for another job."""
        present = self._children.get(child.job_id)
        if present is not None and not present.is_same_as(child):
            raise Conflict(
                f"this attempt has already enqueued another job named {child.spec.name!r}: within an execution, a name means one "
                "job; give each job its own name, or none"
            )
        return present is not None

    def _append(self, child: ChildJob) -> None:
        limits = self._enqueueing
        if len(self._children) >= limits.most_jobs:
            raise InvalidInput(
                f"this attempt has enqueued {limits.most_jobs} jobs, and no more are allowed (limits.enqueued_jobs): enqueue a "
                "job that enqueues the others"
            )
        size = _size_of(child)
        if self._size + size > limits.most_bytes:
            raise PayloadTooLarge(
                f"the jobs of this attempt have {self._size + size} bytes, more than {limits.most_bytes} "
                "(limits.enqueued_bytes): store large payloads elsewhere, and pass references to them"
            )
        self._children[child.job_id] = child
        self._size += size


def _size_of(child: ChildJob) -> int:
    """Return the size of a child job in the report. Raises InvalidInput if its payload is nested too deeply."""
    try:
        text = encode_children([child])
    except RecursionError:
        raise _too_deep() from None
    if is_too_deep(text):
        raise _too_deep()
    return len(text)


def _too_deep() -> InvalidInput:
    return InvalidInput.of("/payload", f"the payload is nested more than {MOST_LEVELS} levels deep")


def raised_again(code: str, detail: str) -> NoondayError:
    """Return the error that `enqueue` raised in the worker, for the process of the handler."""
    kinds: dict[str, type[NoondayError]] = {kind.code: kind for kind in (Conflict, InvalidInput, PayloadTooLarge)}
    return kinds.get(code, NoondayError)(detail)
