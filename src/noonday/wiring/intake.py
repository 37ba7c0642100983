"""The services and queries behind the API, which every process with access to the store has."""

from collections.abc import Callable, Sequence
from typing import Any

from noonday.alerts.alert_service import AlertService
from noonday.alerts.notice_jobs import NoticeJobs
from noonday.alerts.notices import Notifier
from noonday.alerts.preferences import PreferenceService, Seal
from noonday.intake.blockers import BlockerFinder
from noonday.intake.child_jobs import ChildJobCreator
from noonday.intake.resumer import Resumer
from noonday.intake.services import intake_services
from noonday.model.ids import JobId, new_job_id
from noonday.model.notifications.sending import ProviderAccount
from noonday.notifications.account_service import FlawsOfAccount
from noonday.notifications.accounts import AccountCache
from noonday.notifications.providers.hosts import ProviderHosts
from noonday.tasks.endpoint_disabler import EndpointDisabler
from noonday.tasks.endpoints import EndpointService
from noonday.tasks.secrets import SecretService
from noonday.tasks.task_service import TaskService
from noonday.webhooks.addresses import Networks
from noonday.webhooks.bounds import CallBounds
from noonday.wiring.built_in_handlers import channels_of
from noonday.wiring.drivers import Drivers
from noonday.wiring.notifications import flaws_for, notification_services
from noonday.wiring.roles.role import ProcessContext


class IntakePart:
    """Services and queries behind the API. They never wait for a scheduler."""

    def __init__(
        self,
        drivers: Drivers,
        context: ProcessContext,
        *,
        live: Callable[[], dict[str, Any]] = dict,
        new_id: Callable[[], JobId] = new_job_id,
        default_accounts: Sequence[ProviderAccount] = (),
        flaws_of_account: FlawsOfAccount | None = None,
    ) -> None:
        """`default_accounts`: provider accounts that every tenant may use, such as those of the provider doubles.

        `flaws_of_account`: the checks of accounts, if they may name other hosts than the settings allow.
        """
        clock = drivers.clock
        self.services = intake_services(
            jobs=drivers.jobs,
            query_store=drivers.query_store,
            execution_search=drivers.execution_search,
            operations=drivers.operations,
            selection=drivers.selection,
            settings_store=drivers.settings_store,
            workload=drivers.workload,
            index=drivers.index,
            signals=drivers.signals,
            tokens=drivers.tokens,
            offload=drivers.offload,
            clock=clock,
            keyring=drivers.keyring,
            limits=context.settings.sizes,
            hint_ahead_ms=context.hint_ahead_ms,
            tracing=context.tracing,
            logs_url=context.settings.logs_url_template,
            live=live,
            new_id=new_id,
            on_placed=context.dispatcher_wake.set,
            on_created=context.metrics.count_created,
        )
        receipts = self.services.receipts
        self.secrets = SecretService(drivers.endpoints, receipts, drivers.keyring, clock)
        self.endpoint_disabler = EndpointDisabler(drivers.endpoints, self.services.jobs)
        self.resumer = Resumer(drivers.jobs, self.services.editor, self.services.jobs, clock)
        endpoints = EndpointService(drivers.endpoints, self.endpoint_disabler, receipts, clock)
        webhooks = context.settings.webhooks
        bounds = CallBounds(Networks(webhooks.networks), webhooks.max_timeout_sec)
        self.tasks = TaskService(
            self.services, self.secrets, drivers.query_store, drivers.executions, clock, endpoints, bounds
        )
        seal, notice_jobs = Seal(drivers.keyring), self._make_notice_jobs(drivers, new_id)
        channels = channels_of(context.settings)
        self.alerts = AlertService(drivers.alerts, receipts, clock)
        self.preferences = PreferenceService(drivers.notices, channels, seal, notice_jobs, receipts, clock, bounds)
        self.accounts = AccountCache(drivers.provider_accounts, drivers.keyring, clock, default_accounts)
        """Provider accounts, as this process knows them. Senders in the same process share it: a change is effective at once."""
        writer = f"{context.instance}-api"
        check = flaws_of_account or flaws_for(ProviderHosts(Networks(webhooks.networks), ()))
        self.notifications = notification_services(drivers, receipts, self.accounts, check, writer)
        self.child_jobs = ChildJobCreator(
            drivers.child_jobs, self.services.jobs, drivers.alerts, drivers.keyring, clock
        )
        self.notifier = Notifier(drivers.alerts, drivers.notices, drivers.query_store, seal, notice_jobs, clock)

    def _make_notice_jobs(self, drivers: Drivers, new_id: Callable[[], JobId]) -> NoticeJobs:
        return NoticeJobs(
            jobs=drivers.jobs,
            settings_store=drivers.settings_store,
            sender=self.services.sender,
            pools=self.services.pools,
            keyring=drivers.keyring,
            clock=drivers.clock,
            make_first_secret=self.secrets.make_first,
            new_id=new_id,
        )


def blocker_finder(drivers: Drivers) -> BlockerFinder:
    return BlockerFinder(drivers.query_store, drivers.settings_store, drivers.workload, drivers.tokens, drivers.clock)
