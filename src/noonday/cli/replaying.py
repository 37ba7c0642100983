"""Parts that replays of jobs and of calls share: options, name, progress bar, rate limit and failure limit."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from hashlib import blake2b
from typing import Any, Protocol, TypeVar

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

from noonday.cli.instants import exact
from noonday.cli.screen import console
from noonday.model.errors import Conflict, InvalidInput
from noonday.model.view import ExecutionView
from noonday.ports.clock import Clock

F = TypeVar("F", bound=Callable[..., None])
LONGEST_ID = 40
BATCHES_A_SEC = 4
LARGEST_BATCH = 500
LOOK_SEC = 1.0
LOOKED_AT = 100
"""Maximum number of executions that one poll reads."""
ReportProgress = Callable[[int, int], object]
"""Takes the numbers of requested and failed items."""


def limit_options(*, rate: str, failures: str, dry_run: str) -> Callable[[F], F]:
    """Return a decorator that adds --rate, --stop-after-failures, --dry-run and --yes, with these help texts."""

    def decorate(command: F) -> F:
        for option in (
            click.option("--yes", is_flag=True, help="Do not ask for confirmation."),
            click.option("--dry-run", is_flag=True, help=dry_run),
            click.option(
                "--stop-after-failures",
                "most_failures",
                type=click.IntRange(0),
                default=10,
                show_default=True,
                metavar="N",
                help=failures,
            ),
            click.option("--rate", type=click.FloatRange(0.01, 10_000), default=50, show_default=True, help=rate),
        ):
            command = option(command)
        return command

    return decorate


def confirm_unless(yes: bool, question: str) -> None:
    if not yes:
        click.confirm(question, abort=True, err=True)


def check_id(replay_id: str | None, is_valid: Callable[[str], bool], rule: str) -> None:
    """Raise InvalidInput unless the name of a replay is short and valid. `rule` names the allowed characters."""
    if replay_id is not None and not (1 <= len(replay_id) <= LONGEST_ID and is_valid(replay_id)):
        raise InvalidInput.of("--id", f"the id must have 1 to {LONGEST_ID} {rule}", replay_id)


def check_period(start_flag: str, start: datetime | None, end_flag: str, end: datetime) -> None:
    """Raise InvalidInput if a period ends before it starts."""
    if start is not None and end <= start:
        raise InvalidInput.of(end_flag, f"{exact(end)} is not after {start_flag} {exact(start)}", exact(end))


def default_id(*filters: object) -> str:
    """Return the name of a replay that was given none. The same filters have the same name."""
    return blake2b("|".join(map(str, filters)).encode(), digest_size=6).hexdigest()


@contextmanager
def replaying(total: int) -> Iterator[Any]:
    """Yield a function that takes the numbers of requested and failed items. Only a terminal shows the bar."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    screen = console(err=True)
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task("replaying", total=total)
        yield lambda asked_for, failed: bar.update(
            task, completed=asked_for, description=f"replaying, {failed} failed" if failed else "replaying"
        )


class Sent(Protocol):
    """Numbers of what a replay has sent. Its text is a sentence."""

    failed: int

    @property
    def asked_for(self) -> int: ...
    def members(self) -> dict[str, Any]: ...


class ReplayLimits:
    """Rate limit and failure limit of a replay."""

    def __init__(
        self,
        sent: Sent,
        find: Callable[[str], Awaitable[ExecutionView | None]],
        *,
        rate: float,
        most_failures: int,
        remaining: str,
        clock: Clock,
    ) -> None:
        """`find` returns the execution that is watched under a name. `remaining` names what a stopped replay leaves."""
        self._sent = sent
        self._brake = Brake(find, most_failures)
        self._rate = rate
        self._remaining = remaining
        self._clock = clock
        self.begin()

    def begin(self) -> None:
        """Measure the rate, in items per second, from now on."""
        self._began, self._sent_before = self._clock.monotonic(), self._sent.asked_for

    @property
    def batch_size(self) -> int:
        return max(1, min(LARGEST_BATCH, int(self._rate / BATCHES_A_SEC)))

    def watch(self, name: str) -> None:
        """Count an execution if an attempt of it fails."""
        self._brake.watch(name)

    async def look(self, times: int = 1) -> None:
        """Read executions without a known result, a page at a time, and count the failed ones."""
        for _ in range(times):
            await self._brake.look()
        self._sent.failed = self._brake.failed

    async def after_batch(self, progress: ReportProgress) -> None:
        """Count failures from time to time, report progress, and wait for the rate. Raises Conflict if too many failed."""
        if self._brake.is_due(self._clock.monotonic()):
            await self.look()
        progress(self._sent.asked_for, self._sent.failed)
        self.refuse_if_stopped()
        due = self._began + (self._sent.asked_for - self._sent_before) / self._rate
        await self._clock.sleep(max(0.0, due - self._clock.monotonic()))

    def refuse_if_stopped(self) -> None:
        """Raise Conflict if too many executions failed."""
        if self._brake.is_on:
            detail = f"stopped: {self._sent}. {self._remaining} remain; run the same replay again to continue"
            raise Conflict(detail, **self._sent.members())


class Brake:
    """Counts new executions with a failed attempt, even if another attempt follows, and limits their number."""

    def __init__(self, find: Callable[[str], Awaitable[ExecutionView | None]], most_failures: int) -> None:
        """`find` returns the execution that is watched under a name, or None if there is none yet."""
        self._find = find
        self._most = most_failures
        self._open: deque[str] = deque()
        self._next_look = 0.0
        self.failed = 0

    @property
    def is_on(self) -> bool:
        return self.failed > self._most

    @property
    def open(self) -> int:
        """Number of executions without a known result."""
        return len(self._open)

    def watch(self, name: str) -> None:
        self._open.append(name)

    def is_due(self, now: float) -> bool:
        if now < self._next_look:
            return False
        self._next_look = now + LOOK_SEC
        return True

    async def look(self) -> None:
        """Read the oldest executions without a known result and count the failed ones."""
        names = [self._open.popleft() for _ in range(min(LOOKED_AT, len(self._open)))]
        for name, execution in zip(names, await asyncio.gather(*map(self._find, names)), strict=True):
            if execution is not None and has_failed(execution):
                self.failed += 1
            elif execution is None or execution.state in ("PENDING", "RUNNING"):
                self._open.append(name)


def has_failed(execution: ExecutionView) -> bool:
    """Return whether an attempt failed and the execution has not succeeded since.

    The error of a waiting execution does not count: it names what the execution waits for.
    """
    if execution.state in ("DEAD", "EXPIRED"):
        return True
    return execution.state != "SUCCEEDED" and any(attempt.error for attempt in execution.attempts)
