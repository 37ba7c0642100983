"""Runs as the worker makes them, with valid defaults, and waits for their effects."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import msgspec

from noonday.crypto.envelope import context_of
from noonday.crypto.keyring import Keyring
from noonday.model.handler import Handler, Mode
from noonday.model.ids import ExecutionId, JobId
from noonday.model.message import Dispatch, Token
from noonday.worker.run import Run
from tests.worker.process_handlers import codec_of

DEADLINE_SEC = 60.0
_TENANT = "acme"
_JOB = JobId("job-1")


def new_run(call: Callable[..., Any], keyring: Keyring, payload: Any = None, progress: Any = None) -> Run:
    decode, encode = codec_of(call)
    handler = Handler(call.__name__, "batch", call, Mode.PROCESS, decode, encode)
    dispatch = Dispatch(
        execution_id=ExecutionId("execution-1"),
        number=1,
        job_id=_JOB,
        tenant=_TENANT,
        pool="batch",
        handler=handler.name,
        due_ms=0,
        nominal_ms=0,
        attempt=3,
        fired_ms=0,
        revision=1,
        timeout_sec=None,
        heartbeat_timeout_sec=None,
        start_deadline_sec=None,
        payload=_sealed(keyring, payload),
        progress=_sealed(keyring, progress),
        trace=None,
    )
    run = Run(dispatch, Token(1, 5), handler)
    run.open_payload(keyring)
    return run


async def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SEC
    while not holds():
        assert time.monotonic() < deadline, "the condition was not met in time"
        await asyncio.sleep(0.002)


def _sealed(keyring: Keyring, value: Any) -> bytes | None:
    return None if value is None else keyring.seal(msgspec.json.encode(value), context_of(_TENANT, _JOB))
