"""Synchronous client: a thin wrapper that runs the asynchronous client in a background thread."""

import asyncio
import atexit
import contextlib
import os
import threading
import weakref
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, overload

from noonday.model.view import Page
from noonday.sdk.alert_preferences import AlertPreferencesClient
from noonday.sdk.alerts import AlertsClient
from noonday.sdk.client import Client, Listing
from noonday.sdk.endpoints import EndpointsClient
from noonday.sdk.problems import ClientClosed
from noonday.sdk.secrets import SecretsClient
from noonday.sdk.spec import Duration
from noonday.sdk.tasks import TasksClient

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
        _portals.add(self)

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

    def after_fork(self) -> None:
        """Reset the portal in a forked child: a thread of the parent may hold the lock or run the loop."""
        self._lock = threading.Lock()
        self._thread = None


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


_portals: "weakref.WeakSet[Portal]" = weakref.WeakSet()


def _after_fork() -> None:
    for portal in list(_portals):
        portal.after_fork()


os.register_at_fork(after_in_child=_after_fork)


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


class paging(Generic[P, PageT, T]):
    """Descriptor: a version of a listing method of `Client` whose pages are iterated without `async`."""

    def __init__(self, method: Callable[Concatenate[Client, P], Listing[PageT, T]]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: "SyncClient", owner: type) -> Callable[P, Pages[PageT, T]]: ...
    def __get__(self, client: "SyncClient | None", owner: type) -> Self | Callable[P, Pages[PageT, T]]:
        if client is None:
            return self

        def call(*args: P.args, **kwargs: P.kwargs) -> Pages[PageT, T]:
            return Pages(client.portal, self._method(client.client, *args, **kwargs))

        return call


class _Resource(Generic[ClientT]):
    """A part of the client, which shares its portal."""

    def __init__(self, portal: Portal, client: ClientT) -> None:
        self.portal = portal
        self.client = client


class SyncTasks(_Resource[TasksClient]):
    """`TasksClient` without `async`."""

    create = blocking(TasksClient.create)
    get = blocking(TasksClient.get)
    list = blocking(TasksClient.list)
    change = blocking(TasksClient.change)
    pause = blocking(TasksClient.pause)
    resume = blocking(TasksClient.resume)
    delete = blocking(TasksClient.delete)
    executions = blocking(TasksClient.executions)
    calls = blocking(TasksClient.calls)
    find_executions = blocking(TasksClient.find_executions)
    resend = blocking(TasksClient.resend)
    resend_many = blocking(TasksClient.resend_many)
    dead_letters = blocking(TasksClient.dead_letters)
    dead_letter = blocking(TasksClient.dead_letter)
    retry_dead = blocking(TasksClient.retry_dead)
    archive_dead = blocking(TasksClient.archive_dead)
    retry_dead_where = blocking(TasksClient.retry_dead_where)
    archive_dead_where = blocking(TasksClient.archive_dead_where)


class SyncAlerts(_Resource[AlertsClient]):
    """`AlertsClient` without `async`."""

    list = blocking(AlertsClient.list)
    get = blocking(AlertsClient.get)
    acknowledge = blocking(AlertsClient.acknowledge)
    acknowledge_all = blocking(AlertsClient.acknowledge_all)


class SyncAlertPreferences(_Resource[AlertPreferencesClient]):
    """`AlertPreferencesClient` without `async`."""

    list = blocking(AlertPreferencesClient.list)
    get = blocking(AlertPreferencesClient.get)
    put = blocking(AlertPreferencesClient.put)
    delete = blocking(AlertPreferencesClient.delete)
    test = blocking(AlertPreferencesClient.test)


class SyncSecrets(_Resource[SecretsClient]):
    """`SecretsClient` without `async`."""

    make = blocking(SecretsClient.make)
    list = blocking(SecretsClient.list)
    end = blocking(SecretsClient.end)


class SyncEndpoints(_Resource[EndpointsClient]):
    """`EndpointsClient` without `async`."""

    list = blocking(EndpointsClient.list)
    get = blocking(EndpointsClient.get)
    set = blocking(EndpointsClient.set)
    enable = blocking(EndpointsClient.enable)
    disable = blocking(EndpointsClient.disable)


class SyncClient:
    """`Client` with blocking methods. Any number of threads may share one."""

    def __init__(self, url: str, token: str | None = None, *, timeout: Duration = 30) -> None:
        self.client = Client(url, token, timeout=timeout)
        self.portal = Portal()
        self.tasks = SyncTasks(self.portal, self.client.tasks)
        self.secrets = SyncSecrets(self.portal, self.client.secrets)
        self.alert_preferences = SyncAlertPreferences(self.portal, self.client.alert_preferences)
        self.endpoints = SyncEndpoints(self.portal, self.client.endpoints)
        self.alerts = SyncAlerts(self.portal, self.client.alerts)
        _clients.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections and end the thread. Pending calls raise ClientClosed."""
        self.portal.close(self.client.close)

    create = blocking(Client.create)
    create_many = blocking(Client.create_many)
    get_job = blocking(Client.get_job)
    list_jobs = paging(Client.list_jobs)
    replace = blocking(Client.replace)
    pause = blocking(Client.pause)
    resume = blocking(Client.resume)
    delete = blocking(Client.delete)
    trigger = blocking(Client.trigger)
    backfill = blocking(Client.backfill)
    occurrences = blocking(Client.occurrences)
    preview = blocking(Client.preview)
    get_execution = blocking(Client.get_execution)
    list_executions = paging(Client.list_executions)
    cancel = blocking(Client.cancel)
    result = blocking(Client.result)
    dead_letters = paging(Client.dead_letters)
    retry_dead = blocking(Client.retry_dead)
    archive_dead = blocking(Client.archive_dead)
    retry_dead_where = blocking(Client.retry_dead_where)
    archive_dead_where = blocking(Client.archive_dead_where)
    pools = blocking(Client.pools)
    get_pool = blocking(Client.get_pool)
    put_pool = blocking(Client.put_pool)
    workers = blocking(Client.workers)
    pauses = blocking(Client.pauses)
    pause_pool = blocking(Client.pause_pool)
    pause_tenant = blocking(Client.pause_tenant)
    pause_all = blocking(Client.pause_all)
    resume_pool = blocking(Client.resume_pool)
    resume_tenant = blocking(Client.resume_tenant)
    resume_all = blocking(Client.resume_all)
    audit = paging(Client.audit)
    get_tenant = blocking(Client.get_tenant)
    put_tenant = blocking(Client.put_tenant)
    usage = blocking(Client.usage)
    overview = blocking(Client.overview)
    proof = blocking(Client.proof)
    health = blocking(Client.health)


_clients: "weakref.WeakSet[SyncClient]" = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for client in list(_clients):
        client.close()
