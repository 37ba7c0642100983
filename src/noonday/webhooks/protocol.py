"""HTTP connections that limit the headers and informational responses of a receiver."""

from typing import Any

from aiohttp import StreamReader, TCPConnector
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import RawResponseMessage
from aiohttp.http_exceptions import HttpProcessingError

MAX_INFORMATIONAL = 8
"""Maximum number of 1xx responses before the final one."""
MAX_HEAD_BYTES = 131_072
"""Maximum size of status lines and headers, including those of 1xx responses."""


class BoundedConnector(TCPConnector):
    """Opens connections that refuse endless informational responses and endless headers."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        loop = self._loop
        # aiohttp has no parameter for this. Tests with real sockets fail if it stops using this attribute.
        self._factory = lambda: _BoundedProtocol(loop)  # type: ignore[assignment]


class _BoundedProtocol(ResponseHandler):
    _head_bytes = 0
    _informational = 0
    _has_final_response = False

    def set_response_params(self, **params: Any) -> None:
        self._head_bytes = self._informational = 0
        self._has_final_response = False
        super().set_response_params(**params)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self._has_final_response:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self._refuse(f"more than {MAX_HEAD_BYTES} bytes of headers")

    def feed_data(self, data: tuple[RawResponseMessage, StreamReader], size: int = 0) -> None:
        if self.exception() is not None:
            return  # data after a refusal in the same packet
        code = data[0].code
        if 100 <= code < 200 and code != 101:
            self._informational += 1
            if self._informational > MAX_INFORMATIONAL:
                self._refuse(f"more than {MAX_INFORMATIONAL} informational responses")
                return
        else:
            self._has_final_response = True
        super().feed_data(data, size)

    def _refuse(self, message: str) -> None:
        if self.transport is not None:
            self.transport.abort()
        if self.exception() is None:
            self.set_exception(HttpProcessingError(code=0, message=message))
