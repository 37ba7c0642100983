"""Parts that replays of jobs and of calls share: options, name, rate limit and failure limit."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from hashlib import blake2b
from typing import Any, Protocol, TypeVar

import click

from noonday.cli.braking import Brake, Pace
from noonday.cli.instants import exact
from noonday.model.errors import Conflict, InvalidInput
from noonday.model.view import ExecutionView
from noonday.ports.clock import Clock

F = TypeVar("F", bound=Callable[..., None])
LONGEST_ID = 40
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
            click.option(
                "--rate",
                type=click.FloatRange(0.01, 10_000),
                default=50,
                show_default=True,
                help=rate,
            ),
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
        """Measure the rate from now on."""
        self._pace, self._sent_before = Pace(self._rate, self._clock), self._sent.asked_for

    @property
    def batch_size(self) -> int:
        return self._pace.batch_size

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
        await self._pace.keep(self._sent.asked_for - self._sent_before)

    def refuse_if_stopped(self) -> None:
        """Raise Conflict if too many executions failed."""
        if self._brake.is_on:
            detail = f"stopped: {self._sent}. {self._remaining} remain; run the same replay again to continue"
            raise Conflict(detail, **self._sent.members())
