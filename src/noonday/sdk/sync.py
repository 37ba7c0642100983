"""Synchronous client: a thin wrapper that runs the asynchronous client in a background thread."""

import atexit
import os
import weakref
from typing import Generic, Self, TypeVar

from noonday.model.job_fields import Duration
from noonday.sdk.administration import AdministrationMethods
from noonday.sdk.alert_preferences import AlertPreferencesClient
from noonday.sdk.alerts import AlertsClient
from noonday.sdk.client import Client
from noonday.sdk.dead_letters import DeadLetterMethods
from noonday.sdk.endpoints import EndpointsClient
from noonday.sdk.exchange import NewExchange, SessionExchange
from noonday.sdk.executions import ExecutionMethods
from noonday.sdk.jobs import JobMethods
from noonday.sdk.notifications import NotificationsClient
from noonday.sdk.operations import OperationsClient
from noonday.sdk.pauses import PauseMethods
from noonday.sdk.portal import Portal, blocking, paging
from noonday.sdk.providers import ProvidersClient
from noonday.sdk.secrets import SecretsClient
from noonday.sdk.tasks import TasksClient
from noonday.sdk.tokens import TokenProvider
from noonday.sdk.users import UsersClient

ClientT = TypeVar("ClientT")


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


class SyncNotifications(_Resource[NotificationsClient]):
    """`NotificationsClient` without `async`."""

    send = blocking(NotificationsClient.send)
    send_many = blocking(NotificationsClient.send_many)
    get = blocking(NotificationsClient.get)
    list = blocking(NotificationsClient.list)


class SyncUsers(_Resource[UsersClient]):
    """`UsersClient` without `async`."""

    put = blocking(UsersClient.put)
    get = blocking(UsersClient.get)
    delete = blocking(UsersClient.delete)


class SyncProviders(_Resource[ProvidersClient]):
    """`ProvidersClient` without `async`."""

    put = blocking(ProvidersClient.put)
    get = blocking(ProvidersClient.get)
    list = blocking(ProvidersClient.list)
    delete = blocking(ProvidersClient.delete)


class SyncOperations(_Resource[OperationsClient]):
    """`OperationsClient` without `async`."""

    preview = blocking(OperationsClient.preview)
    start = blocking(OperationsClient.start)
    get = blocking(OperationsClient.get)
    list = blocking(OperationsClient.list)
    stop = blocking(OperationsClient.stop)


class SyncJobMethods(_Resource[Client]):
    """`JobMethods` without `async`."""

    create = blocking(JobMethods.create)
    create_many = blocking(JobMethods.create_many)
    create_ids = blocking(JobMethods.create_ids)
    get_job = blocking(JobMethods.get_job)
    list_jobs = paging(JobMethods.list_jobs)
    replace = blocking(JobMethods.replace)
    change = blocking(JobMethods.change)
    pause = blocking(JobMethods.pause)
    resume = blocking(JobMethods.resume)
    delete = blocking(JobMethods.delete)
    trigger = blocking(JobMethods.trigger)
    skip = blocking(JobMethods.skip)
    undo_skip = blocking(JobMethods.undo_skip)
    move = blocking(JobMethods.move)
    backfill = blocking(JobMethods.backfill)
    occurrences = blocking(JobMethods.occurrences)
    preview = blocking(JobMethods.preview)


class SyncExecutionMethods(_Resource[Client]):
    """`ExecutionMethods` without `async`."""

    get_execution = blocking(ExecutionMethods.get_execution)
    get_execution_logs = blocking(ExecutionMethods.get_execution_logs)
    list_executions = paging(ExecutionMethods.list_executions)
    search_executions = paging(ExecutionMethods.search_executions)
    execution_groups = blocking(ExecutionMethods.execution_groups)
    cancel = blocking(ExecutionMethods.cancel)
    result = blocking(ExecutionMethods.result)
    success = blocking(ExecutionMethods.success)


class SyncDeadLetterMethods(_Resource[Client]):
    """`DeadLetterMethods` without `async`."""

    dead_letters = paging(DeadLetterMethods.dead_letters)
    dead_letter_groups = blocking(DeadLetterMethods.dead_letter_groups)
    retry_dead = blocking(DeadLetterMethods.retry_dead)
    archive_dead = blocking(DeadLetterMethods.archive_dead)
    retry_dead_where = blocking(DeadLetterMethods.retry_dead_where)
    archive_dead_where = blocking(DeadLetterMethods.archive_dead_where)


class SyncAdministrationMethods(_Resource[Client]):
    """`AdministrationMethods` without `async`."""

    pools = blocking(AdministrationMethods.pools)
    get_pool = blocking(AdministrationMethods.get_pool)
    put_pool = blocking(AdministrationMethods.put_pool)
    workers = blocking(AdministrationMethods.workers)
    audit = paging(AdministrationMethods.audit)
    get_tenant = blocking(AdministrationMethods.get_tenant)
    put_tenant = blocking(AdministrationMethods.put_tenant)
    usage = blocking(AdministrationMethods.usage)
    overview = blocking(AdministrationMethods.overview)
    proof = blocking(AdministrationMethods.proof)
    health = blocking(AdministrationMethods.health)


class SyncPauseMethods(_Resource[Client]):
    """`PauseMethods` without `async`."""

    pauses = blocking(PauseMethods.pauses)
    pause_pool = blocking(PauseMethods.pause_pool)
    pause_tenant = blocking(PauseMethods.pause_tenant)
    pause_all = blocking(PauseMethods.pause_all)
    resume_pool = blocking(PauseMethods.resume_pool)
    resume_tenant = blocking(PauseMethods.resume_tenant)
    resume_all = blocking(PauseMethods.resume_all)


class SyncClient(
    SyncJobMethods, SyncExecutionMethods, SyncDeadLetterMethods, SyncAdministrationMethods, SyncPauseMethods
):
    """`Client` with blocking methods. Any number of threads may share one."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        token_provider: TokenProvider | None = None,
        token_file: str | os.PathLike[str] | None = None,
        timeout: Duration = 30,
        new_exchange: NewExchange = SessionExchange,
    ) -> None:
        client = Client(
            url,
            token,
            token_provider=token_provider,
            token_file=token_file,
            timeout=timeout,
            new_exchange=new_exchange,
        )
        super().__init__(Portal(), client)
        self.tasks = SyncTasks(self.portal, self.client.tasks)
        self.secrets = SyncSecrets(self.portal, self.client.secrets)
        self.alert_preferences = SyncAlertPreferences(self.portal, self.client.alert_preferences)
        self.endpoints = SyncEndpoints(self.portal, self.client.endpoints)
        self.alerts = SyncAlerts(self.portal, self.client.alerts)
        self.notifications = SyncNotifications(self.portal, self.client.notifications)
        self.users = SyncUsers(self.portal, self.client.users)
        self.providers = SyncProviders(self.portal, self.client.providers)
        self.operations = SyncOperations(self.portal, self.client.operations)
        _clients.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections and end the thread. Pending calls raise ClientClosed."""
        self.portal.close(self.client.close)


_clients: "weakref.WeakSet[SyncClient]" = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for client in list(_clients):
        client.close()
