"""The client for code without an event loop: a thin portal to the asynchronous one, which does all the work."""

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
from noonday.sdk.alert_preferences import AlertPreferences
from noonday.sdk.alerts import Alerts
from noonday.sdk.client import Client, ClientClosed, Listing
from noonday.sdk.endpoints import Endpoints
from noonday.sdk.secrets import Secrets
from noonday.sdk.spec import Duration
from noonday.sdk.tasks import Tasks

P = ParamSpec("P")
T = TypeVar("T")
PageT = TypeVar("PageT", bound=Page)
AskedT = TypeVar("AskedT")
AskedT_co = TypeVar("AskedT_co", covariant=True)
_END = object()
_END_WITHIN_SEC = 5.0
"""How long closing may take, also at the exit of the process."""


class Portal:
    """An event loop in a thread of its own, to which any thread can hand coroutines.

    The thread is started at the first use in a process. A forked child has none of its parent's threads, so it starts its own:
    a client may be made before a fork (gunicorn --preload, Celery, multiprocessing) and used on both sides of it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closed = False
        self._thread: _LoopThread | None = None
        _portals.add(self)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """What the coroutine returns or raises. Raises ClientClosed if the portal is closed before it ends."""
        with self._lock:
            if self._closed:
                coroutine.close()
                raise ClientClosed("this client is closed")
            if self._thread is None:
                self._thread = _LoopThread()
            future = self._thread.submit(coroutine)
        try:
            return future.result()
        except CancelledError as cancelled:
            raise ClientClosed("this client was closed before the answer came") from cancelled
        finally:
            future.cancel()  # matters if the waiting itself was interrupted, as by Ctrl-C

    def close(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run one last coroutine, cancel all others, end the thread. A second call does nothing."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.end(last)

    def after_fork(self) -> None:
        """In the child: the lock may be held by a thread that is not there, and so may the loop."""
        self._lock = threading.Lock()
        self._thread = None


class _LoopThread:
    """A daemon thread that runs an event loop until it is ended."""

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
    """As `Listing`, for plain loops: `for page in pages`, or `for one in pages.items()`."""

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


class Waiting(Protocol[AskedT_co]):
    """Whoever has something asynchronous, and a portal to wait for its answers at."""

    @property
    def client(self) -> AskedT_co: ...
    @property
    def portal(self) -> Portal: ...


class blocking(Generic[AskedT, P, T]):
    """A method of `Client`, or of a part of it, as one that waits for its answer, with the same signature."""

    def __init__(self, method: Callable[Concatenate[AskedT, P], Coroutine[Any, Any, T]]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: Waiting[AskedT], owner: type) -> Callable[P, T]: ...
    def __get__(self, client: Waiting[AskedT] | None, owner: type) -> Self | Callable[P, T]:
        if client is None:
            return self

        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            return client.portal.run(self._method(client.client, *args, **kwargs))

        return call


class paging(Generic[P, PageT, T]):
    """A method of `Client` that lists, as one whose pages are iterated over without `async`."""

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


class SyncTasks:
    """`Tasks` without `async`."""

    def __init__(self, portal: Portal, client: Tasks) -> None:
        self.portal = portal
        self.client = client

    create = blocking(Tasks.create)
    get = blocking(Tasks.get)
    list = blocking(Tasks.list)
    change = blocking(Tasks.change)
    pause = blocking(Tasks.pause)
    resume = blocking(Tasks.resume)
    delete = blocking(Tasks.delete)
    executions = blocking(Tasks.executions)
    calls = blocking(Tasks.calls)
    find_executions = blocking(Tasks.find_executions)
    resend = blocking(Tasks.resend)
    resend_many = blocking(Tasks.resend_many)
    dead_letters = blocking(Tasks.dead_letters)
    dead_letter = blocking(Tasks.dead_letter)
    retry_dead = blocking(Tasks.retry_dead)
    archive_dead = blocking(Tasks.archive_dead)
    retry_dead_where = blocking(Tasks.retry_dead_where)
    archive_dead_where = blocking(Tasks.archive_dead_where)


class SyncAlerts:
    """`Alerts` without `async`."""

    def __init__(self, portal: Portal, client: Alerts) -> None:
        self.portal = portal
        self.client = client

    list = blocking(Alerts.list)
    get = blocking(Alerts.get)
    acknowledge = blocking(Alerts.acknowledge)
    acknowledge_all = blocking(Alerts.acknowledge_all)


class SyncAlertPreferences:
    """`AlertPreferences` without `async`."""

    def __init__(self, portal: Portal, client: AlertPreferences) -> None:
        self.portal = portal
        self.client = client

    list = blocking(AlertPreferences.list)
    get = blocking(AlertPreferences.get)
    put = blocking(AlertPreferences.put)
    delete = blocking(AlertPreferences.delete)
    test = blocking(AlertPreferences.test)


class SyncSecrets:
    """`Secrets` without `async`."""

    def __init__(self, portal: Portal, client: Secrets) -> None:
        self.portal = portal
        self.client = client

    make = blocking(Secrets.make)
    list = blocking(Secrets.list)
    end = blocking(Secrets.end)


class SyncEndpoints:
    """`Endpoints` without `async`."""

    def __init__(self, portal: Portal, client: Endpoints) -> None:
        self.portal = portal
        self.client = client

    list = blocking(Endpoints.list)
    get = blocking(Endpoints.get)
    set = blocking(Endpoints.set)
    enable = blocking(Endpoints.enable)
    disable = blocking(Endpoints.disable)


class SyncClient:
    """`Client` without `async`: the same methods, which wait. Any number of threads may share one."""

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
        """Let go of all connections and end the thread; whoever still waits gets ClientClosed."""
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
    hold = blocking(Client.hold)
    let_go = blocking(Client.let_go)
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
