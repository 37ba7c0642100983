"""Messages between a worker and the processes that run its handlers."""

from collections.abc import Iterator
from typing import Any

import msgspec

from noonday.model.execution import Failure
from noonday.model.ids import JobId
from noonday.model.message import Dispatch, Token
from noonday.worker.function_ref import FunctionRef

HEAD_BYTES = 4
"""Length of the size that precedes each message."""


CONVERTER = "noonday.sdk.payload:to_builtins"


class Call(msgspec.Struct, frozen=True, array_like=True, tag="call"):
    """To a child: run a handler."""

    function: FunctionRef
    resolver: str
    dispatch: Dispatch
    token: Token
    payload: bytes | None
    progress: bytes | None
    result_limit: int
    progress_limit: int
    log_level: int = 0
    """Lowest level of the records that the worker wants."""
    converter: str = CONVERTER
    """The function (`module:function`) that converts the payload of an enqueued job to JSON builtins."""


class Cancel(msgspec.Struct, frozen=True, array_like=True, tag="cancel"):
    """To a child: ask the running handler to end."""

    reason: str


class HandlerEntered(msgspec.Struct, frozen=True, array_like=True, tag="entered"):
    """Message of a child: the handler is imported, its payload is decoded, and it is called now."""


class ProgressMessage(msgspec.Struct, frozen=True, array_like=True, tag="progress"):
    """Message of a child: a heartbeat, with or without progress."""

    progress: bytes | None


class LogMessage(msgspec.Struct, frozen=True, array_like=True, tag="log"):
    """Message of a child: a record of the handler's logger."""

    level: int
    text: str


class EnqueueMessage(msgspec.Struct, frozen=True, array_like=True, tag="enqueue"):
    """Message of a child: the handler enqueues a job, and waits for the answer."""

    handler: str
    """The name of a handler, or of a function in `module`."""
    module: str | None
    payload: Any
    fields: dict[str, Any]


class EnqueueAnswer(msgspec.Struct, frozen=True, array_like=True, tag="enqueued"):
    """To a child: the answer to its last EnqueueMessage."""

    job_id: JobId | None = None
    name: str | None = None
    error: str | None = None
    """The code of the error, if there is one."""
    detail: str = ""


class HandlerEnded(msgspec.Struct, frozen=True, array_like=True, tag="ended"):
    """Message of a child: the handler has ended."""

    observed: bool
    """True if the handler has read its cancellation."""
    result: bytes | None = None
    failure: Failure | None = None
    snooze_ms: int | None = None
    wait_ms: int = 0
    """Minimum delay of the next attempt."""
    raised_cancelled: bool = False
    """True if the handler raised CancelledError or Cancelled."""


FromChild = HandlerEntered | ProgressMessage | LogMessage | EnqueueMessage | HandlerEnded
ToChild = Call | Cancel | EnqueueAnswer


def packed(message: ToChild | FromChild) -> bytes:
    """Return a message as bytes, with its size in front."""
    body = _encode(message)
    return len(body).to_bytes(HEAD_BYTES, "big") + body


def pop_messages(buffer: bytearray) -> Iterator[bytes]:
    """Remove the complete messages from the head of a buffer and yield them."""
    start = 0
    while len(buffer) >= start + HEAD_BYTES:
        body = start + HEAD_BYTES
        end = body + int.from_bytes(buffer[start:body], "big")
        if len(buffer) < end:
            break
        yield bytes(buffer[body:end])
        start = end
    del buffer[:start]


_encode = msgspec.msgpack.Encoder().encode
decode_from_child = msgspec.msgpack.Decoder(FromChild).decode
decode_from_worker = msgspec.msgpack.Decoder(ToChild).decode
