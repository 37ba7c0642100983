"""Tokens that a client renews: from a file that is replaced, or from a function of the application."""

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from aiohttp import web

from noonday.model.errors import InvalidInput, Unauthorized
from noonday.sdk.client import Client
from noonday.sdk.problems import TokenUnavailable
from noonday.sdk.tokens import MOST_BYTES
from tests.sdk.test_client import BREAK, Wire, job, listening, problem, served_from_a_thread


@pytest.fixture
async def wire():
    async with listening(Wire()) as served:
        yield served


class Issuer:
    """An identity provider that issues a-1, a-2, and so on."""

    def __init__(self) -> None:
        self.issued = 0

    def __call__(self) -> str:
        self.issued += 1
        return f"a-{self.issued}"

    async def later(self) -> str:
        await asyncio.sleep(0)
        return self()


def refusal() -> web.Response:
    return problem(401, "unauthorized", "the token has expired")


def sent(wire: Wire) -> list[str | None]:
    return [asked.headers.get("Authorization") for asked in wire.asked]


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_provider_is_asked_once_until_its_token_is_refused(wire: Wire, is_async: bool) -> None:
    issuer = Issuer()
    wire.will(job(), job(), refusal(), job(), job())
    async with Client(wire.url, token_provider=issuer.later if is_async else issuer) as client:
        for _ in range(4):
            await client.get_job("a")
    assert sent(wire) == ["Bearer a-1"] * 3 + ["Bearer a-2"] * 2
    assert issuer.issued == 2


async def test_a_change_is_repeated_under_its_key_after_a_refusal(wire: Wire) -> None:
    wire.will(refusal(), job())
    async with Client(wire.url, token_provider=Issuer()) as client:
        await client.pause("a")
    first, second = wire.asked
    assert first.headers["Idempotency-Key"] == second.headers["Idempotency-Key"]


async def test_a_second_refusal_is_raised_and_asks_nobody_again(wire: Wire) -> None:
    issuer = Issuer()
    wire.will(refusal(), refusal())
    async with Client(wire.url, token_provider=issuer) as client:
        with pytest.raises(Unauthorized, match="expired"):
            await client.get_job("a")
    assert issuer.issued == 2
    assert len(wire.asked) == 2


async def test_the_same_token_again_is_not_sent_again(wire: Wire) -> None:
    wire.will(refusal())
    async with Client(wire.url, token_provider=lambda: "the only one") as client:
        with pytest.raises(Unauthorized):
            await client.get_job("a")
    assert len(wire.asked) == 1


async def test_requests_that_are_refused_together_share_one_new_token(wire: Wire) -> None:
    issuer = Issuer()
    wire.will(job())
    async with Client(wire.url, token_provider=issuer) as client:
        await client.get_job("a")
        answers = {"Bearer a-1": refusal, "Bearer a-2": job}
        wire.answer_by(lambda asked: answers[asked.headers["Authorization"]]())
        await asyncio.gather(*(client.get_job("a") for _ in range(20)))
    assert issuer.issued == 2


async def test_a_refusal_by_a_proxy_renews_the_token_too(wire: Wire) -> None:
    issuer = Issuer()
    wire.will(web.Response(status=401, text="<html>who are you?"), job())
    async with Client(wire.url, token_provider=issuer) as client:
        await client.get_job("a")
    assert issuer.issued == 2


async def test_a_broken_connection_does_not_cost_a_token(wire: Wire) -> None:
    issuer = Issuer()
    wire.will(BREAK, job())
    async with Client(wire.url, token_provider=issuer, sleep=wire.sleep) as client:
        await client.get_job("a")
    assert issuer.issued == 1


def failing() -> str:
    raise OSError("the identity provider is away")


@pytest.mark.parametrize(
    ("provider", "message"),
    [
        (failing, "token_provider failed: OSError: the identity provider is away"),
        (lambda: " ", "token_provider returned an empty text"),
    ],
)
async def test_a_provider_without_a_token_is_named_and_asked_again_by_the_next_request(
    wire: Wire, provider, message: str
) -> None:
    answers = [provider, lambda: "good"]
    wire.will(job())
    async with Client(wire.url, token_provider=lambda: answers.pop(0)()) as client:
        with pytest.raises(TokenUnavailable, match=message):
            await client.get_job("a")
        await client.get_job("a")
    assert sent(wire) == ["Bearer good"]


async def test_a_provider_that_does_not_return_is_given_up(wire: Wire) -> None:
    go = threading.Event()
    try:
        async with Client(wire.url, token_provider=lambda: str(go.wait(60)), timeout=0.01) as client:
            with pytest.raises(TokenUnavailable, match=r"within 0\.01 s"):
                await client.get_job("a")
    finally:
        go.set()


async def test_a_token_file_is_read_again_when_it_is_replaced(wire: Wire, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    wire.will(job(), job(), job())
    async with Client(wire.url, token_file=file) as client:
        await client.get_job("a")
        replacement = tmp_path / "next"
        replacement.write_text("second\n")
        replacement.rename(file)
        await client.get_job("a")
        file.unlink()
        await client.get_job("a")
    assert sent(wire) == ["Bearer first", "Bearer second", "Bearer second"]


async def test_a_token_file_that_changed_unnoticed_is_read_after_a_refusal(wire: Wire, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old")
    wire.will(job(), refusal(), job())
    async with Client(wire.url, token_file=file) as client:
        await client.get_job("a")
        before = file.stat()
        file.write_text("new")
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        await client.get_job("a")
    assert sent(wire) == ["Bearer old", "Bearer old", "Bearer new"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file"),
        (b"", "is empty"),
        (b"\xff\xfe", "not UTF-8"),
        (b"x" * (MOST_BYTES + 1), "is not a token"),
    ],
)
async def test_a_token_file_that_has_no_token_is_named(
    wire: Wire, tmp_path: Path, content: bytes | None, message: str
) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    async with Client(wire.url, token_file=file) as client:
        with pytest.raises(TokenUnavailable, match=message) as raised:
            await client.get_job("a")
    assert str(file) in raised.value.detail
    assert wire.asked == []


def test_one_source_of_tokens_is_given() -> None:
    with pytest.raises(InvalidInput, match="token and token_file cannot be combined"):
        Client("http://127.0.0.1:1", "t", token_file="file")
    with pytest.raises(InvalidInput, match="token_provider is a str"):
        Client("http://127.0.0.1:1", token_provider="t")  # type: ignore[arg-type]


FORKS_WHILE_A_PROVIDER_IS_ASKED = """
import os, sys, threading
from noonday.sdk.sync import SyncClient

asked, go = threading.Event(), threading.Event()
parent = os.getpid()

def provider():
    if os.getpid() == parent:
        asked.set()
        go.wait(60)
    return "of the parent" if os.getpid() == parent else "of the child"

client = SyncClient(sys.argv[1], token_provider=provider, timeout=60)
request = threading.Thread(target=client.get_job, args=("a",))
request.start()
assert asked.wait(60)
if (child := os.fork()) == 0:
    client.get_job("b")
    os._exit(0)
_, status = os.waitpid(child, 0)
go.set()
request.join()
print(status)
"""


@pytest.mark.slow
def test_a_child_that_is_forked_while_the_provider_is_asked_asks_on_its_own() -> None:
    """Exits without a call to `close`, and without a warning."""
    with served_from_a_thread() as wire:
        wire.will(job(), job())
        script = [sys.executable, "-W", "error", "-c", FORKS_WHILE_A_PROVIDER_IS_ASKED, wire.url]
        ran = subprocess.run(script, capture_output=True, text=True, timeout=120, check=False)
    assert (ran.stdout, ran.stderr) == ("0\n", "")
    assert sent(wire) == ["Bearer of the child", "Bearer of the parent"]
