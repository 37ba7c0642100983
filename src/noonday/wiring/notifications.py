"""The services of notifications, on the drivers of a process."""

from functools import partial

from noonday.intake.receipts import Receipts
from noonday.notifications.accepting import StoredAcceptor
from noonday.notifications.account_service import AccountService, FlawsOfAccount
from noonday.notifications.accounts import AccountCache
from noonday.notifications.dispatching import Sealer
from noonday.notifications.placing import Placing
from noonday.notifications.profiles import Profiles
from noonday.notifications.providers.catalogue import flaws_of_account
from noonday.notifications.providers.hosts import ProviderHosts
from noonday.notifications.queries import NotificationQueries
from noonday.notifications.service import NotificationService
from noonday.notifications.services import NotificationServices
from noonday.notifications.user_service import UserService
from noonday.wiring.drivers import Drivers


def flaws_for(hosts: ProviderHosts) -> FlawsOfAccount:
    """Return the checks of all kinds of accounts. `hosts`: those that accounts may name."""
    return partial(flaws_of_account, hosts=hosts)


def notification_services(
    drivers: Drivers, receipts: Receipts, cache: AccountCache, check: FlawsOfAccount, writer: str
) -> NotificationServices:
    """Return the services. `writer` names this process among those that store notifications."""
    clock, keyring = drivers.clock, drivers.keyring
    profiles = Profiles(drivers.users, keyring)
    users = UserService(drivers.users, profiles, receipts, clock)
    accounts = AccountService(drivers.provider_accounts, cache, keyring, check, receipts, clock)
    stores = drivers.notifications
    if stores is None:
        return NotificationServices(users, accounts, None, None)
    sealer = Sealer(keyring)
    acceptor = StoredAcceptor(stores.scheduled_notifications, stores.bus, clock, sealer, Placing(), writer)
    return NotificationServices(
        users,
        accounts,
        NotificationService(acceptor, drivers.users, profiles, cache.has_any, clock),
        NotificationQueries(stores.scheduled_notifications, stores.notification_events, sealer, clock),
    )
