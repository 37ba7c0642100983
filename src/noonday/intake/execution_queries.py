"""Queries of the executions of all jobs."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64

from noonday.crypto.envelope import context_of
from noonday.crypto.keyring import Keyring
from noonday.intake.execution_service import ExecutionService
from noonday.intake.presenters import Presenter
from noonday.model.caller import Caller
from noonday.model.errors import BadKey, InvalidInput, NotFound
from noonday.model.found_executions import ExecutionFilter, ExecutionGroup, GroupedBy
from noonday.model.ids import ExecutionId, TenantId, is_id_prefix
from noonday.model.job import instant_of
from noonday.model.operation_view import ExecutionGroupList, ExecutionGroupView
from noonday.model.view import ExecutionPage
from noonday.ports.clock import Clock
from noonday.ports.execution_search import ExecutionSearch

SCAN_LIMIT = 5_000
"""Maximum number of executions scanned for one page, so that a page costs the same however few of them match."""
MOST_GROUPS = 20
"""Maximum number of groups of a response."""
_CURSOR = "cursor of /v1/executions"


class ExecutionQueries:
    """Lists executions over all jobs of the caller's tenant."""

    def __init__(
        self,
        execution_search: ExecutionSearch,
        executions: ExecutionService,
        presenter: Presenter,
        keyring: Keyring,
        clock: Clock,
    ) -> None:
        self._execution_search = execution_search
        self._executions = executions
        self._presenter = presenter
        self._keyring = keyring
        self._clock = clock

    async def search(
        self, caller: Caller, where: ExecutionFilter, *, cursor: str | None = None, limit: int = 50
    ) -> ExecutionPage:
        """List executions, newest scheduled time first. Nothing is decrypted. A page may be short and still have a `next`.

        A search walks the executions of all tenants. So the cursor is sealed: its id may be that of another tenant.
        """
        if where.id_prefix is not None and not is_id_prefix(where.id_prefix):
            detail = "idPrefix is not the beginning of an id: write it in lower case and with the hyphens of the id"
            raise InvalidInput.of("/idPrefix", detail, where.id_prefix)
        after = None if cursor is None else self._opened(caller.tenant, cursor)
        page = await self._execution_search.search(
            caller.tenant, where, after, limit, most=SCAN_LIMIT, now_ms=self._clock.now_ms()
        )
        views = (self._presenter.execution(each.execution, each.job_name, summary=True) for each in page.found)
        following = None if page.next is None else self._sealed(caller.tenant, page.next)
        return ExecutionPage(executions=tuple(views), next=following)

    async def groups(self, caller: Caller, where: ExecutionFilter, by: GroupedBy) -> ExecutionGroupList:
        """Return the largest groups of the newest executions. By what they wait for, only pending ones are grouped."""
        found = await self._execution_search.groups(
            caller.tenant, where, by, MOST_GROUPS, most=SCAN_LIMIT, now_ms=self._clock.now_ms()
        )
        if by is not GroupedBy.WAITING_FOR:
            groups = [_group(each, each.name, each.name, is_least=found.is_least) for each in found.groups]
            return ExecutionGroupList(groups=tuple(groups), is_least=found.is_least)
        by_reason: dict[str, ExecutionGroup] = {}
        for each in found.groups:
            reason = await self._reason(caller, each.oldest)
            if reason is not None:
                by_reason[reason] = _joined(by_reason.get(reason), each)
        groups = [
            _group(each, reason, f"waits for {reason}", is_least=found.is_least) for reason, each in by_reason.items()
        ]
        return ExecutionGroupList(groups=tuple(groups), is_least=found.is_least)

    async def _reason(self, caller: Caller, execution_id: ExecutionId) -> str | None:
        """Return what an execution waits for, without its position. None if it waits no longer."""
        try:
            waiting_for = (await self._executions.get(caller, execution_id, summary=True)).waiting_for
        except NotFound:
            return None
        return waiting_for and waiting_for.partition("; ")[0]

    def _sealed(self, tenant: TenantId, position: str) -> str:
        sealed = self._keyring.seal(position.encode(), context_of(tenant, _CURSOR))
        return urlsafe_b64encode(sealed).decode().rstrip("=")

    def _opened(self, tenant: TenantId, cursor: str) -> str:
        try:
            sealed = urlsafe_b64decode(cursor.encode() + b"=" * (-len(cursor) % 4))
            return self._keyring.open(sealed, context_of(tenant, _CURSOR)).decode()
        except (NotBase64, ValueError, BadKey) as bad:
            detail = "not a cursor of this list: use `next` of its previous page"
            raise InvalidInput.of("/cursor", detail, cursor) from bad


def _joined(first: ExecutionGroup | None, second: ExecutionGroup) -> ExecutionGroup:
    if first is None:
        return second
    return ExecutionGroup(first.name, min(first.oldest, second.oldest), first.count + second.count)


def _group(of: ExecutionGroup, key: str, text: str, *, is_least: bool) -> ExecutionGroupView:
    oldest_ms = int(of.oldest[:8] + of.oldest[9:13], 16)
    return ExecutionGroupView(key=key, text=text, count=of.count, is_least=is_least, oldest_at=instant_of(oldest_ms))
