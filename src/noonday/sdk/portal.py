"""Blocking versions of asynchronous methods, which run in a portal: an event loop in a background thread."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, overload

from noonday.model.view import Page
from noonday.sdk.forks import on_fork
from noonday.sdk.methods import Listing
from noonday.sdk.problems import ClientClosed

P = ParamSpec("P")
T = TypeVar("T")
PageT = TypeVar("PageT", bound=Page)
ClientT = TypeVar("ClientT")
ClientT_co = TypeVar("ClientT_co", covariant=True)
_END = object()
_END_WITHIN_SEC = 5.0
"""Timeout of closing in seconds, also at process exit."""


class Portal:
    """An event loop in its own thread, which runs coroutines for any thread.

    The thread starts at first use. A forked child has none of its parent's threads, so it starts its own: a client may be
    created before a fork (gunicorn --preload, Celery, multiprocessing) and used in both processes.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closed = False
        self._thread: _LoopThread | None = None
        on_fork(self)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine and return its result. Raises ClientClosed if the portal closes before it ends."""
        with self._lock:
            if self._closed:
                coroutine.close()
                raise ClientClosed("the client is closed; create a new one")
            if self._thread is None:
                self._thread = _LoopThread()
            future = self._thread.submit(coroutine)
        try:
            return future.result()
        except CancelledError as cancelled:
            raise ClientClosed("the client was closed before the response arrived") from cancelled
        finally:
            future.cancel()  # for an interrupted wait, such as Ctrl-C

    def close(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `last`, cancel all other coroutines and end the thread. A second call does nothing."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.end(last)

    def after_fork(self) -> list[object]:
        """Reset the portal in a forked child: a thread of the parent may hold the lock or run the loop."""
        self._lock = threading.Lock()
        inherited, self._thread = self._thread, None
        return [] if inherited is None else [inherited]


class _LoopThread:
    """A daemon thread that runs an event loop until `end`."""

    def __init__(self) -> None:
        ready: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._thread = threading.Thread(target=asyncio.run, args=(_idle(ready),), name="noonday-client", daemon=True)
        self._thread.start()
        self._loop, self._stop = ready.result()

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def end(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        with contextlib.suppress(TimeoutError):
            self.submit(last()).result(_END_WITHIN_SEC)
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_END_WITHIN_SEC)


async def _idle(ready: "Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]]") -> None:
    stop = asyncio.Event()
    ready.set_result((asyncio.get_running_loop(), stop))
    await stop.wait()


class Pages(Generic[PageT, T]):
    """Synchronous `Listing`: `for page in pages`, or `for item in pages.items()`."""

    def __init__(self, portal: Portal, listing: Listing[PageT, T]) -> None:
        self._portal = portal
        self._listing = listing

    def __iter__(self) -> Iterator[PageT]:
        return _iterate(self._portal, self._listing)

    def items(self) -> Iterator[T]:
        return _iterate(self._portal, self._listing.items())


def _iterate(portal: Portal, source: AsyncIterable[T]) -> Iterator[T]:
    iterator = aiter(source)
    while (value := portal.run(_next(iterator))) is not _END:
        yield value


async def _next(iterator: AsyncIterator[Any]) -> Any:
    return await anext(iterator, _END)


class HasPortal(Protocol[ClientT_co]):
    """An object with an asynchronous client and a portal that runs its coroutines."""

    @property
    def client(self) -> ClientT_co: ...
    @property
    def portal(self) -> Portal: ...


class blocking(Generic[ClientT, P, T]):
    """Descriptor: a blocking version of an asynchronous method, with the same signature."""

    def __init__(self, method: Callable[Concatenate[ClientT, P], Coroutine[Any, Any, T]]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: HasPortal[ClientT], owner: type) -> Callable[P, T]: ...
    def __get__(self, client: HasPortal[ClientT] | None, owner: type) -> Self | Callable[P, T]:
        if client is None:
            return self

        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            return client.portal.run(self._method(client.client, *args, **kwargs))

        return call


class paging(Generic[ClientT, P, PageT, T]):
    """Descriptor: a version of a listing method whose pages are iterated without `async`."""

    def __init__(self, method: Callable[Concatenate[ClientT, P], Listing[PageT, T]]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: HasPortal[ClientT], owner: type) -> Callable[P, Pages[PageT, T]]: ...
    def __get__(self, client: HasPortal[ClientT] | None, owner: type) -> Self | Callable[P, Pages[PageT, T]]:
        if client is None:
            return self

        def call(*args: P.args, **kwargs: P.kwargs) -> Pages[PageT, T]:
            return Pages(client.portal, self._method(client.client, *args, **kwargs))

        return call
