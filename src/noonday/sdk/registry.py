"""Registry of an application's handlers and of the jobs that it declares in code."""

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

import msgspec

from noonday.model import job
from noonday.model.errors import Conflict, InvalidInput, nearest
from noonday.model.handler import FailureHooks, Handler, Mode
from noonday.model.job import JobSpec, JobType, Target
from noonday.model.job_fields import DeclaredFields, Duration, EnqueueFields, JobFields
from noonday.model.retry import RetryPolicy
from noonday.model.view import ExecutionView
from noonday.sdk.payload import label, result_decoder_of, shape_of, to_builtins
from noonday.sdk.spec import TIMINGS, retry_policy_of, seconds_of, timing, with_fields

if TYPE_CHECKING:
    from noonday.sdk.client import Client
    from noonday.sdk.tokens import TokenProvider

F = TypeVar("F", bound=Callable[..., Any])
_ARGUMENTS_OF_JOB = ("at", "delay", "cron", "every", "timezone", "pool", "name", "payload")
_ARGUMENTS_OF_DECLARATION = ("timezone", "name", "pool", "timeout", "retry", "process", "payload")


class Registry:
    """Handlers by pool and name (`handlers`), and jobs declared in code (`declared`).

    Decorators return the function unchanged, so it can be called and tested like any other. An invalid function, name or
    schedule raises InvalidInput when the module is imported.
    """

    def __init__(self) -> None:
        self.handlers: dict[tuple[str, str], Handler] = {}
        self.declared: list[JobSpec] = []
        self._hooks = FailureHooks()

    @overload
    def handler(self, name: F, /) -> F: ...

    @overload
    def handler(
        self,
        name: str | None = None,
        *,
        pool: str = "default",
        timeout: Duration | None = None,
        retry: RetryPolicy | Mapping[str, Any] | None = None,
        process: bool = False,
    ) -> Callable[[F], F]: ...

    def handler(
        self,
        name: Any = None,
        *,
        pool: str = "default",
        timeout: Duration | None = None,
        retry: RetryPolicy | Mapping[str, Any] | None = None,
        process: bool = False,
    ) -> Any:
        """Register a function as a handler: `@app.handler` or `@app.handler("name", pool=..., ...)`.

        The function takes a context and optionally a payload, which is decoded from JSON by its annotation. `async def` runs
        on the handlers' event loop, `def` in a thread, and `def` with `process=True` in its own process, which can be killed.
        `timeout` (seconds) and `retry` are defaults for jobs. `name` defaults to the function's name. A second handler with
        the same name in the pool raises Conflict.
        """
        if callable(name):
            return self.handler()(name)

        def register(function: F) -> F:
            self._add([_handler_of(function, name, pool, timeout, retry, process)], [])
            return function

        return register

    def cron(
        self,
        expression: str,
        *,
        timezone: str = "UTC",
        name: str | None = None,
        pool: str = "default",
        timeout: Duration | None = None,
        retry: RetryPolicy | Mapping[str, Any] | None = None,
        process: bool = False,
        payload: Any = None,
        **fields: Unpack[DeclaredFields],
    ) -> Callable[[F], F]:
        """Register a function as a handler, and declare the job that runs it by a cron expression.

        Handler and job have the same `name`. Declared jobs are created or updated when the application starts.
        """
        when = timing(at=None, delay=None, cron=expression, every=None, timezone=timezone)
        make = partial(_handler_of, name=name, pool=pool, timeout=timeout, retry=retry, process=process)
        return self._declare(make, when, payload, fields)

    def every(
        self,
        seconds: Duration,
        *,
        name: str | None = None,
        pool: str = "default",
        timeout: Duration | None = None,
        retry: RetryPolicy | Mapping[str, Any] | None = None,
        process: bool = False,
        payload: Any = None,
        **fields: Unpack[DeclaredFields],
    ) -> Callable[[F], F]:
        """Like `cron`, for a job that runs every `seconds`, counted from the Unix epoch plus `phase_sec`."""
        when = timing(at=None, delay=None, cron=None, every=seconds, timezone=None)
        make = partial(_handler_of, name=name, pool=pool, timeout=timeout, retry=retry, process=process)
        return self._declare(make, when, payload, fields)

    def include(self, other: "Registry") -> None:
        """Add all handlers and declared jobs of another registry. Raises Conflict, and adds none, if a name is taken."""
        self._add(list(other.handlers.values()), other.declared)
        if other is not self and self._hooks not in other._hooks.included_by:
            other._hooks.included_by.append(self._hooks)

    def on_failure(self, function: F) -> F:
        """Call a function `(ctx, failed)` after each failed attempt of a handler, in the worker that ran it: `@app.on_failure`.

        It may be `async def` or `def`, and has `worker.hook_timeout_sec` to end. Its exceptions are logged. The attempt is
        reported whatever the function does. It is called at most once for each attempt: not if the worker dies.
        """
        self._hooks.on_failure.append(_checked_hook(function))
        return function

    def on_dead(self, function: F) -> F:
        """Like `on_failure`, for the last attempt of an execution: its attempts are used up, or it is not to be retried."""
        self._hooks.on_dead.append(_checked_hook(function))
        return function

    def spec_for(
        self,
        handler: str | Callable[..., Any],
        payload: Any = None,
        **fields: Unpack[EnqueueFields],
    ) -> JobSpec:
        """Return the spec of a job that runs a handler, given by name or function: now, or by one of the four timings.

        For a handler of this registry, `pool` is optional and the payload is validated. Any other handler needs `pool`. Raises
        InvalidInput.
        """
        given: dict[str, Any] = {**fields}
        pool, name = given.pop("pool", None), given.pop("name", None)
        when = timing(**{timing: given.pop(timing, None) for timing in TIMINGS})
        known = self._find(handler, pool)
        plain = to_builtins(payload)
        if known:
            _check_payload(known, plain)
            target = Target(known.pool, known.name)
        else:
            assert isinstance(handler, str)
            assert pool is not None
            target = Target(pool, handler)
        spec = JobSpec(target=target, name=name, payload=plain, **when)
        return with_fields(spec, given, JobFields.__optional_keys__, _ARGUMENTS_OF_JOB)

    def result_of(self, execution: ExecutionView) -> Any:
        """Return the result of an execution, for a handler of this registry as the type that the function returns."""
        known = self.handlers.get((execution.pool, execution.handler))
        return execution.result if known is None else result_decoder_of(known.call)(execution.result)

    def handler_of(self, function: Callable[..., Any]) -> Handler:
        """Return the handler that a function is registered as. Raises InvalidInput if there is none, or several."""
        found = self._find(function, None)
        assert found is not None
        return found

    @staticmethod
    def client(
        url: str,
        token: str | None = None,
        *,
        token_provider: "TokenProvider | None" = None,
        token_file: str | os.PathLike[str] | None = None,
        timeout: float = 30,
    ) -> "Client":
        """Return a client of a Noonday server: `async with Noonday.client(url, token) as client`."""
        from noonday.sdk.client import Client

        return Client(url, token, token_provider=token_provider, token_file=token_file, timeout=timeout)

    def _declare(
        self, make: Callable[[F], Handler], when: dict[str, Any], payload: Any, fields: DeclaredFields
    ) -> Callable[[F], F]:
        def declare(function: F) -> F:
            handler = make(function)
            self._add([handler], [_declaration(handler, when, payload, fields)])
            return function

        return declare

    def _add(self, handlers: list[Handler], jobs: list[JobSpec]) -> None:
        for handler in handlers:
            present = self.handlers.get((handler.pool, handler.name))
            if present and present is not handler:
                both = f"{label(present.call)} and {label(handler.call)}"
                raise Conflict(f"pool {handler.pool} has two handlers {handler.name}: {both}")
        new = [spec for spec in jobs if not any(spec is present for present in self.declared)]
        keys = {spec.unique_key for spec in self.declared}
        for spec in new:
            if spec.unique_key in keys:
                raise Conflict(
                    f"two declared jobs are named {spec.name}; names of declared jobs must be unique across pools"
                )
        mine = [handler if handler.hooks else replace(handler, hooks=self._hooks) for handler in handlers]
        self.handlers.update({(handler.pool, handler.name): handler for handler in mine})
        self.declared += new

    def _find(self, wanted: str | Callable[..., Any], pool: str | None) -> Handler | None:
        found = [
            handler
            for handler in self.handlers.values()
            if wanted in (handler.name, handler.call) and pool in (None, handler.pool)
        ]
        if len(found) == 1:
            return found[0]
        if found:
            raise self._ambiguous(wanted, found)
        if callable(wanted):
            raise InvalidInput(
                f"{label(wanted)} is not a handler of this application" + (f" in pool {pool}" if pool else "")
            )
        if pool is None:
            raise self._unknown(wanted)
        return None

    def _ambiguous(self, wanted: str | Callable[..., Any], found: list[Handler]) -> InvalidInput:
        matches = [f"{handler.name} in pool {handler.pool}" for handler in found]
        name = label(wanted) if callable(wanted) else wanted
        detail = f"{name} matches several handlers: {', '.join(matches)}; set pool"
        return InvalidInput.of("/target/handler", detail, name, allowed=matches)

    def _unknown(self, name: str) -> InvalidInput:
        names = sorted({known for _, known in self.handlers})
        guess = nearest(name, names)
        detail = f"unknown handler {name}" + (f"; did you mean {guess}?" if guess else "")
        detail += "; for a handler of another application, set pool"
        return InvalidInput.of("/target/handler", detail, name, allowed=names, nearest=guess)


def _checked_hook(function: F) -> F:
    if not callable(function):
        raise InvalidInput(f"{function!r} cannot be a hook: expected a function (ctx, failed), `async def` or `def`")
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        raise InvalidInput(f"{label(function)} cannot be a hook: expected two parameters, (ctx, failed)") from None
    return function


def _handler_of(
    function: Callable[..., Any],
    name: str | None,
    pool: str,
    timeout: Duration | None,
    retry: RetryPolicy | Mapping[str, Any] | None,
    process: bool,
) -> Handler:
    mode = _mode_of(function, process)
    shape = shape_of(function, name)
    handler = Handler(
        name=name or function.__name__,
        pool=pool,
        call=function,
        mode=mode,
        decode=shape.decode,
        encode=shape.encode,
        schema=shape.schema,
        timeout_sec=None if timeout is None else seconds_of(timeout, "/timeout"),
        retry_policy=None if retry is None else retry_policy_of(retry),
        doc=inspect.getdoc(function),
    )
    _check_handler(handler)
    return handler


def _mode_of(function: Callable[..., Any], process: bool) -> Mode:
    if not (inspect.isfunction(function) or inspect.ismethod(function)):
        raise InvalidInput(f"{function!r} cannot be a handler: expected a function, `async def` or `def`")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidInput(f"{label(function)} yields: expected a handler that returns")
    if not process:
        return Mode.ASYNC if inspect.iscoroutinefunction(function) else Mode.THREAD
    if inspect.iscoroutinefunction(function):
        raise InvalidInput(f"{label(function)} is `async def`: expected a plain `def` for process=True")
    if not function.__qualname__.isidentifier():
        raise InvalidInput(
            f"{label(function)} cannot be imported by another process: expected a function at the top of its module "
            "for process=True"
        )
    return Mode.PROCESS


def _check_handler(handler: Handler) -> None:
    target = Target(handler.pool, handler.name)
    probe = JobSpec(
        type=JobType.ONE_TIME, target=target, timeout_sec=handler.timeout_sec, retry_policy=handler.retry_policy
    )
    _check(probe, label(handler.call))


def _declaration(handler: Handler, when: dict[str, Any], payload: Any, fields: DeclaredFields) -> JobSpec:
    plain = to_builtins(payload)
    spec = JobSpec(
        target=Target(handler.pool, handler.name),
        name=handler.name,
        unique_key=f"code:{handler.name}",
        payload=plain,
        **when,
    )
    spec = with_fields(spec, fields, DeclaredFields.__optional_keys__, _ARGUMENTS_OF_DECLARATION)
    _check(spec, label(handler.call))
    _check_payload(handler, plain)
    return spec


def _check(spec: JobSpec, function: str) -> None:
    """Validate a spec. Raises InvalidInput that names the function, because it appears in an import's traceback."""
    try:
        # Only `runAt` depends on the clock, and no declared job has one.
        job.check(spec, now_ms=0)
    except InvalidInput as bad:
        details = "; ".join(f"{flaw.pointer}: {flaw.detail}" for flaw in bad.flaws)
        raise InvalidInput(f"{function}: {details}", bad.flaws) from bad


def _check_payload(handler: Handler, payload: Any) -> None:
    if handler.decode:
        handler.decode(msgspec.json.encode(payload))
    elif payload is not None:
        raise InvalidInput.of("/payload", f"handler {handler.name} takes no payload", payload)
