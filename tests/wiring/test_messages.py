"""Messages that developers of an application meet: each names the field, the value, what is allowed, and the next step."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from noonday import Context, Noonday, RetryPolicy
from noonday.model.errors import ExecutionFailed, InvalidInput
from noonday.model.job import Overlap
from noonday.model.retry import Backoff
from noonday.sdk.executions import ResultTimeout

WITHIN_SEC = 60


NAIVE = datetime(2030, 1, 1, 9, 30)  # noqa: DTZ001 - the error of a time without a zone is tested


class Mail: ...


def application() -> Noonday:
    app = Noonday()

    @app.handler("ship", pool="shop")
    async def ship(ctx: Context, payload: int) -> int:
        return payload

    @app.handler("post", pool="shop", retry={"max_attempts": 1})
    async def post(ctx: Context) -> Mail:
        return Mail()

    return app


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"delai": 5}, "unknown field delai; did you mean delay?"),
        ({"at": NAIVE.replace(hour=0, minute=0)}, "at needs a time zone: datetime(2030, 1, 1, tzinfo=UTC)"),
        ({"at": "2030-01-01"}, "at must be a datetime with a time zone, not '2030-01-01'"),
        (
            {"every": 60, "start_at": NAIVE},
            "start_at needs a time zone: datetime(2030, 1, 1, 9, 30, tzinfo=UTC)",
        ),
        ({"delay": -3}, "delay must be at least 0 s and at most 100 years, not -3"),
        ({"every": 0}, "every must be at least 1 s and at most 100 years, not 0"),
        ({"timeout": 0}, "timeout must be at least 0.001 s and at most 30 days, not 0"),
        (
            {"overlap": "skipp"},
            "overlap must be one of ALLOW, SKIP, BUFFER_ONE, BUFFER_ALL, CANCEL_OTHER, not 'skipp'; did you mean SKIP?",
        ),
        (
            {"retry": {"max_attempt": 3}},
            "unknown field retry.max_attempt; did you mean max_attempts?",
        ),
        ({"retry": 3}, "retry: expected `object | null`, got `int`"),
        (
            {"delai": 5, "overlap": "x"},
            "unknown field delai; did you mean delay?; "
            "overlap must be one of ALLOW, SKIP, BUFFER_ONE, BUFFER_ALL, CANCEL_OTHER, not 'x'",
        ),
    ],
)
def test_wrong_argument_is_refused_with_the_next_step(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        application().spec_for("ship", 1, **fields)
    assert str(refused.value) == said


def test_words_of_an_enumeration_are_accepted_in_lower_case() -> None:
    assert application().spec_for("ship", 1, overlap="skip").overlap is Overlap.SKIP


@pytest.mark.parametrize(
    ("fields", "policy"),
    [
        ({"max_attempts": 3}, RetryPolicy(max_attempts=3)),
        ({"maxAttempts": 3}, RetryPolicy(max_attempts=3)),
        ({"backoff": "fixed", "delays_ms": [1, 2]}, RetryPolicy(backoff=Backoff.FIXED, delays_ms=(1, 2))),
    ],
)
def test_a_retry_policy_may_be_a_dict(fields: dict[str, Any], policy: RetryPolicy) -> None:
    assert application().spec_for("ship", 1, retry=fields).retry_policy == policy


def declare_in_a_decorator(app: Noonday) -> None:
    @app.handler("other", retry={"max_attempts": 3})
    async def other(ctx: Context) -> None: ...


def declare_a_cron(app: Noonday) -> None:
    @app.cron("@daily", name="other", retry={"max_attempts": 3}, overlap="skip")
    async def other(ctx: Context) -> None: ...


@pytest.mark.parametrize("declare", [declare_in_a_decorator, declare_a_cron])
def test_a_decorator_accepts_a_dict_as_retry(declare: Callable[[Noonday], None]) -> None:
    app = application()
    declare(app)
    assert app.handlers["default", "other"].retry_policy == RetryPolicy(max_attempts=3)


async def test_a_result_that_is_late_says_what_the_execution_is_doing(tmp_path: Path) -> None:
    app = application()
    async with app.embedded(tmp_path / "app.db"):
        job = await app.enqueue("ship", 1, at=datetime(2100, 1, 1, tzinfo=UTC))
        with pytest.raises(ResultTimeout) as late:
            await app.result(job, timeout=0.01)
    assert str(late.value) == f"job {job.job_id} has no execution yet after 0.01 s"
    assert isinstance(late.value, TimeoutError)


async def test_a_result_without_json_names_the_handler_and_what_to_return(tmp_path: Path) -> None:
    app = application()
    async with app.embedded(tmp_path / "app.db"):
        with pytest.raises(ExecutionFailed) as failed:
            await app.result(await app.enqueue("post"), timeout=WITHIN_SEC)
    assert "handler post returned a Mail: return JSON types, a dataclass, or a model" in str(failed.value)


@pytest.mark.parametrize(
    ("concurrency", "said"),
    [
        ({"shopp": 4}, "concurrency: no pool shopp; did you mean shop?"),
        ({"x": 4}, "concurrency: no pool x; the pools of the handlers are shop"),
        ({"shop": 0}, "concurrency of pool shop must be at least 1, not 0"),
    ],
)
async def test_concurrency_of_an_unknown_pool_is_refused(
    tmp_path: Path, concurrency: dict[str, int], said: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        async with application().embedded(tmp_path / "app.db", concurrency=concurrency):
            pass
    assert str(refused.value) == said
    assert list(tmp_path.iterdir()) == []
