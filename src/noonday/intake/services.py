"""Services of intake, composed once for every mode."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from noonday.crypto.keyring import Keyring
from noonday.intake.audit import AuditQueries
from noonday.intake.backfill_service import BackfillService
from noonday.intake.blockers import BlockerFinder
from noonday.intake.catalogue import Catalogue
from noonday.intake.change_sender import ChangeSender
from noonday.intake.child_jobs import ChildJobAdmission
from noonday.intake.dead_groups import DeadGroups
from noonday.intake.dead_letter_service import DeadLetterService
from noonday.intake.drafts import Drafter
from noonday.intake.execution_ends import ExecutionEnds
from noonday.intake.execution_queries import ExecutionQueries
from noonday.intake.execution_service import ExecutionService
from noonday.intake.job_changer import JobChanger
from noonday.intake.job_editor import JobEditor
from noonday.intake.job_queries import JobQueries
from noonday.intake.job_service import JobService
from noonday.intake.move_service import MoveService
from noonday.intake.occurrence_queries import OccurrenceQueries
from noonday.intake.operation_items import OperationItems
from noonday.intake.operation_service import OperationService
from noonday.intake.pause_service import PauseService
from noonday.intake.payloads import Payloads
from noonday.intake.pool_service import PoolService
from noonday.intake.presenters import Presenter
from noonday.intake.quotas import Quotas
from noonday.intake.receipts import Receipts
from noonday.intake.schedule_previewer import SchedulePreviewer
from noonday.intake.skip_service import SkipService
from noonday.intake.tenant_service import TenantService
from noonday.intake.visits import Visits
from noonday.intake.worker_queries import WorkerQueries
from noonday.model.ids import JobId, new_job_id
from noonday.model.limits import Sizes
from noonday.ports.clock import Clock
from noonday.ports.execution_search import ExecutionSearch
from noonday.ports.hot_index import HotIndex
from noonday.ports.jobs import Jobs
from noonday.ports.offload import Offload
from noonday.ports.operations import Operations
from noonday.ports.queries import QueryStore
from noonday.ports.selection import Selection
from noonday.ports.settings import SettingsStore
from noonday.ports.signals import Signals
from noonday.ports.tokens import Tokens
from noonday.ports.workload import Workload
from noonday.runtime.tracing import Tracing


@dataclass(frozen=True)
class IntakeServices:
    """The services of intake, one for each resource, and what other services share with them."""

    jobs: JobService
    changer: JobChanger
    skips: SkipService
    moves: MoveService
    job_queries: JobQueries
    executions: ExecutionService
    execution_queries: ExecutionQueries
    execution_ends: ExecutionEnds
    occurrences: OccurrenceQueries
    backfills: BackfillService
    dead_letters: DeadLetterService
    dead_groups: DeadGroups
    operations: OperationService
    operation_items: OperationItems
    previewer: SchedulePreviewer
    pools: PoolService
    pauses: PauseService
    tenants: TenantService
    workers: WorkerQueries
    audit: AuditQueries
    visits: Visits
    quotas: Quotas
    receipts: Receipts
    presenter: Presenter
    sender: ChangeSender
    editor: JobEditor
    child_job_admission: ChildJobAdmission


def intake_services(
    *,
    jobs: Jobs,
    query_store: QueryStore,
    execution_search: ExecutionSearch,
    operations: Operations,
    selection: Selection,
    settings_store: SettingsStore,
    workload: Workload,
    index: HotIndex,
    signals: Signals,
    tokens: Tokens,
    offload: Offload,
    clock: Clock,
    keyring: Keyring,
    limits: Sizes,
    hint_ahead_ms: int,
    tracing: Tracing,
    logs_url: str | None = None,
    live: Callable[[], dict[str, Any]] = dict,
    new_id: Callable[[], JobId] = new_job_id,
    on_placed: Callable[[], None] = lambda: None,
    on_created: Callable[[int, int], None] = lambda jobs, tasks: None,
) -> IntakeServices:
    """Build the services from their ports.

    `on_placed` is called after entries were hinted, `on_created` with the numbers of new jobs without and with an endpoint.
    `live` returns figures that only the running engine has.
    """
    presenter, receipts = Presenter(keyring, logs_url), Receipts(jobs, keyring, clock)
    catalogue, quotas = Catalogue(settings_store, clock), Quotas(query_store, settings_store, clock)
    blockers = BlockerFinder(query_store, settings_store, workload, tokens, clock)
    sender = ChangeSender(index=index, signals=signals, clock=clock, hint_ahead_ms=hint_ahead_ms, on_placed=on_placed)
    editor = JobEditor(jobs, receipts, sender)
    drafter = Drafter(
        catalogue=catalogue,
        quotas=quotas,
        payloads=Payloads(keyring, limits),
        presenter=presenter,
        new_id=new_id,
    )
    job_service = JobService(
        jobs=jobs,
        editor=editor,
        sender=sender,
        drafter=drafter,
        quotas=quotas,
        query_store=query_store,
        receipts=receipts,
        presenter=presenter,
        clock=clock,
        tracing=tracing,
        new_id=new_id,
        on_created=on_created,
    )
    executions = ExecutionService(
        editor=editor,
        query_store=query_store,
        workload=workload,
        presenter=presenter,
        blockers=blockers,
        clock=clock,
    )
    dead_letters = DeadLetterService(
        editor=editor, receipts=receipts, query_store=query_store, presenter=presenter, clock=clock
    )
    operation_items = OperationItems(
        jobs=job_service,
        executions=executions,
        dead_letters=dead_letters,
        selection=selection,
        execution_search=execution_search,
        clock=clock,
    )
    return IntakeServices(
        jobs=job_service,
        changer=JobChanger(
            jobs=job_service, editor=editor, query_store=query_store, receipts=receipts, presenter=presenter
        ),
        skips=SkipService(editor=editor, presenter=presenter, clock=clock),
        moves=MoveService(editor=editor, presenter=presenter, clock=clock),
        job_queries=JobQueries(query_store, presenter),
        executions=executions,
        execution_queries=ExecutionQueries(execution_search, executions, presenter, keyring, clock),
        execution_ends=ExecutionEnds(query_store, execution_search, clock),
        occurrences=OccurrenceQueries(query_store=query_store, blockers=blockers, offload=offload, clock=clock),
        backfills=BackfillService(
            editor=editor, receipts=receipts, query_store=query_store, offload=offload, clock=clock
        ),
        dead_letters=dead_letters,
        dead_groups=DeadGroups(selection, offload),
        operations=OperationService(operations, operation_items, receipts, clock),
        operation_items=operation_items,
        previewer=SchedulePreviewer(clock, offload),
        pools=PoolService(
            settings_store=settings_store, workload=workload, catalogue=catalogue, receipts=receipts, clock=clock
        ),
        pauses=PauseService(settings_store=settings_store, catalogue=catalogue, receipts=receipts, clock=clock),
        tenants=TenantService(
            settings_store=settings_store, workload=workload, quotas=quotas, receipts=receipts, clock=clock
        ),
        workers=WorkerQueries(workload=workload, clock=clock, live=live),
        audit=AuditQueries(settings_store),
        visits=Visits(settings_store, clock),
        quotas=quotas,
        receipts=receipts,
        presenter=presenter,
        sender=sender,
        editor=editor,
        child_job_admission=ChildJobAdmission(drafter, quotas, keyring, clock),
    )
