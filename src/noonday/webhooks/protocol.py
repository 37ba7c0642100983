"""The client library's HTTP connection, with bounds on what a receiver may send ahead of its answer."""

from typing import Any

from aiohttp import StreamReader, TCPConnector
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import RawResponseMessage
from aiohttp.http_exceptions import HttpProcessingError

MAX_INFORMATIONAL = 8
"""1xx answers before the final one."""
MAX_HEAD_BYTES = 131_072
"""Status lines and headers, those of 1xx answers included."""


class BoundedConnector(TCPConnector):
    """Makes connections that refuse endless informational answers and endless headers."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        loop = self._loop
        # The library has no parameter for this; the tests with real sockets fail if it stops asking here.
        self._factory = lambda: _BoundedProtocol(loop)  # type: ignore[assignment]


class _BoundedProtocol(ResponseHandler):
    _head_bytes = 0
    _informational = 0
    _is_answered = False

    def set_response_params(self, **params: Any) -> None:
        self._head_bytes = self._informational = 0
        self._is_answered = False
        super().set_response_params(**params)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self._is_answered:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self._refuse(f"more than {MAX_HEAD_BYTES} bytes of headers")

    def feed_data(self, data: tuple[RawResponseMessage, StreamReader], size: int = 0) -> None:
        if self.exception() is not None:
            return  # what comes after a refusal in the same packet
        code = data[0].code
        if 100 <= code < 200 and code != 101:
            self._informational += 1
            if self._informational > MAX_INFORMATIONAL:
                self._refuse(f"more than {MAX_INFORMATIONAL} informational answers")
                return
        else:
            self._is_answered = True
        super().feed_data(data, size)

    def _refuse(self, message: str) -> None:
        if self.transport is not None:
            self.transport.abort()
        if self.exception() is None:
            self.set_exception(HttpProcessingError(code=0, message=message))
