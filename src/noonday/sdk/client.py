"""Asynchronous HTTP client of the API. Each resource has its methods in a module of its own."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Self

from noonday.model.job_fields import Duration
from noonday.sdk.administration import AdministrationMethods
from noonday.sdk.alert_preferences import AlertPreferencesClient
from noonday.sdk.alerts import AlertsClient
from noonday.sdk.dead_letters import DeadLetterMethods
from noonday.sdk.endpoints import EndpointsClient
from noonday.sdk.exchange import NewExchange, SessionExchange
from noonday.sdk.executions import ExecutionMethods, ResultTimeout
from noonday.sdk.jobs import JobMethods
from noonday.sdk.methods import Listing
from noonday.sdk.notifications import NotificationsClient
from noonday.sdk.operations import OperationsClient
from noonday.sdk.pauses import PauseMethods
from noonday.sdk.problems import ClientClosed, Problem, ServerUnreachable
from noonday.sdk.providers import ProvidersClient
from noonday.sdk.secrets import SecretsClient
from noonday.sdk.spec import seconds_of
from noonday.sdk.tasks import TasksClient
from noonday.sdk.tokens import TokenProvider, tokens_of
from noonday.sdk.transport import Transport
from noonday.sdk.users import UsersClient

__all__ = ["Client", "ClientClosed", "Listing", "Problem", "ResultTimeout", "ServerUnreachable"]


class Client(JobMethods, ExecutionMethods, DeadLetterMethods, PauseMethods, AdministrationMethods):
    """Client of a Noonday server: `async with Client(url, token) as client`.

    A problem response raises the class of `noonday.model.errors` with the problem's code. If a connection fails, the client
    retries the request up to 3 times, then raises ServerUnreachable. Every change has an Idempotency-Key, so the server applies
    it once even if the request is repeated. A request takes at most `timeout` seconds.

    A token expires. `token_file` is a file that another program replaces: it is read again when it changes. `token_provider` is a
    function, plain or `async`, that returns a token. It is called for the first request, and once more if the server refuses the
    token.

    `tasks` schedules webhook calls, `secrets` manages their signing secrets, and `endpoints` the limits of the URLs they call.
    `notifications` sends push messages, SMS and emails to `users`, through the accounts in `providers`.
    `operations` changes many jobs, executions or dead letters by a filter.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        token_provider: TokenProvider | None = None,
        token_file: str | os.PathLike[str] | None = None,
        timeout: Duration = 30,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        new_exchange: NewExchange = SessionExchange,
    ) -> None:
        timeout_sec = seconds_of(timeout, "/timeout")
        tokens = tokens_of(token, token_provider, token_file, timeout_sec)
        super().__init__(Transport(url, tokens, timeout_sec, sleep, new_exchange(timeout_sec)))
        self.tasks = TasksClient(self._http)
        self.secrets = SecretsClient(self._http)
        self.alert_preferences = AlertPreferencesClient(self._http)
        self.endpoints = EndpointsClient(self._http)
        self.alerts = AlertsClient(self._http)
        self.notifications = NotificationsClient(self._http)
        self.users = UsersClient(self._http)
        self.providers = ProvidersClient(self._http)
        self.operations = OperationsClient(self._http)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections. Further requests raise ClientClosed."""
        await self._http.close()
