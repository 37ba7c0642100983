"""What type checkers say of an application. A line that ends with `# error` must be refused, and every other line accepted."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

from noonday import Context, Noonday, RetryPolicy, testing


@dataclass
class Mail:
    to: str


app = Noonday()


@app.handler
async def send_mail(ctx: Context, mail: Mail) -> str:
    return mail.to


@app.handler("resize", pool="images", timeout=timedelta(minutes=5), retry=RetryPolicy(max_attempts=3))
def resize(ctx: Context, sizes: list[int]) -> Mail:
    return Mail(str(sizes))


@app.handler(pool="reports", process=True)
def report(ctx: Context, mail: Mail | None = None) -> int:
    return ctx.attempt


@app.cron("0 3 * * *", timezone="Europe/Berlin", retry={"max_attempts": 3})
async def nightly(ctx: Context) -> None: ...


def decorators_keep_the_function() -> None:
    assert_type(resize(testing.context(), [1, 2]), Mail)
    report(testing.context(), 42)  # error


async def payloads_are_those_of_the_handler() -> None:
    await app.enqueue(send_mail, Mail("ada"))
    await app.enqueue(resize, [100, 200], delay=5, timeout=60, retry={"max_attempts": 3})
    await app.enqueue(report)
    await app.enqueue(report, Mail("ada"))
    await app.enqueue(nightly)
    await app.enqueue("elsewhere", {"any": "thing"}, pool="other")
    await app.enqueue(send_mail, 42)  # error
    await app.enqueue(send_mail)  # error
    await app.enqueue(resize, ["large"])  # error
    await app.enqueue(nightly, 42)  # error


async def keyword_arguments_are_known() -> None:
    await app.enqueue(report, at=datetime(2030, 1, 1, tzinfo=UTC), unique_key="k", tags=("a",))
    await app.enqueue(report, delay="5 s")  # error
    await app.enqueue(report, delai=5)  # error
    app.spec_for(report, cron="0 3 * * *", overlap="skip")
    app.spec_for(report, every=datetime(2030, 1, 1, tzinfo=UTC))  # error


def handlers_enqueue_as_applications_do(ctx: Context) -> None:
    ctx.enqueue(send_mail, Mail("ada"), delay=5)
    ctx.enqueue(report)
    ctx.enqueue("elsewhere", {"any": "thing"}, pool="other", name="first")
    ctx.enqueue(send_mail, 42)  # error
    ctx.enqueue(send_mail)  # error
    ctx.enqueue(nightly, 42)  # error
    ctx.enqueue(report, delai=5)  # error


async def results_are_those_of_the_handler() -> None:
    assert_type(await app.result(await app.enqueue(send_mail, Mail("ada"))), str)
    assert_type(await app.result(await app.enqueue(resize, [1])), Mail)
    assert_type(await app.result(await app.enqueue(report), timeout=5), int)
    assert_type(await app.result(await app.enqueue("elsewhere", pool="other")), Any)
    assert_type(await app.result("01a1e539-0000-7000-8000-000000000000"), Any)


async def settings_are_known() -> None:
    async with app.embedded("shop.db", worker_drain_sec=5, log_format="json", concurrency={"images": 2}):
        pass
    async with app.embedded("shop.db", worker_drain_sec="soon"):  # error
        pass
    async with app.embedded("shop.db", worker_drain=5):  # error
        pass


async def the_test_kit_takes_functions_and_models() -> None:
    async with testing.engine(app) as engine:
        engine.assert_enqueued(send_mail, Mail("ada"), count=1)
        engine.assert_enqueued(42)  # error
