"""Mutations of the engine. Each breaks a promise, and names the invariants or properties of which one must report it.

Each bug that the checker missed becomes a new mutation here. The first twelve are those of which random runs saw only two
before the checker verified completeness and bounded lateness.
"""

from dataclasses import dataclass, field

from tests.mutants.changing import Change, constant, query, returning, wrapped

REPLACE = "import msgspec; from msgspec.structs import replace"
FIRING, EDITS, EXECUTION = "model/firing.py", "intake/edits.py", "model/execution.py"
WRITE_SET, FIRE_BATCH, SETTLING = "transitions/write_set.py", "transitions/fire_batch.py", "transitions/settling.py"
WRITTEN_ROWS = "transitions/written_rows.py"
NOTIFICATION_RECORDER, SENDING = "notifications/recorder.py", "notifications/sending.py"
SWEEPER, PRE_START_CHECK = "scheduler/sweeper.py", "worker/pre_start_check.py"
LEFT_OUT, RESUMER = "model/left_out.py", "intake/resumer.py"
SQLITE_FIRING, EXECUTIONS_SQL = "drivers/sqlite/firing.py", "drivers/sqlite/sql/executions.sql"


@dataclass(frozen=True)
class Mutant:
    name: str
    by: tuple[str, ...]
    """Invariants and properties of which one must report the mutant."""
    changes: tuple[Change, ...]
    kind: str = "embedded"
    """The runs that are played: random runs of the embedded engine, of a cluster, or of a cluster with one fault in its
    middle; or directed runs (`directed.py`)."""
    most: int = 60
    """The number of runs after which the mutant has survived."""
    first: int = 0
    """The seed of the first run, which is known to report the mutant."""
    quick: bool = field(default=False)
    """Whether the mutant is killed within seconds: then `make test` plays it."""


def _mutant(name: str, by: str, *changes: Change, **more: object) -> Mutant:
    return Mutant(name, tuple(by.split(", ")), changes, **more)  # type: ignore[arg-type]


MUTANTS = (
    _mutant(
        "cron-fires-once",
        "completeness",
        wrapped(FIRING, "plan_fire", before=REPLACE, after="result = replace(result, next_ms=None)"),
        quick=True,
    ),
    _mutant(
        "edit-loses-schedule",
        "completeness",
        wrapped(
            EDITS, "replace", before=REPLACE, after="result = replace(result, fire=replace(result.fire, due_ms=None))"
        ),
    ),
    _mutant(
        "resume-loses-schedule",
        "completeness",
        wrapped(EDITS, "_resumed", before=REPLACE, after="result = (replace(result[0], due_ms=None), result[1])"),
    ),
    _mutant(
        "max-runs-ignored",
        "completeness",
        wrapped(FIRE_BATCH, "FireBatch._advance", before="given['runs_left'] = None"),
    ),
    _mutant(
        "one-attempt-more",
        "I5",
        wrapped(
            EXECUTION,
            "judge",
            before=REPLACE
            + "; given['policy'] = replace(given['policy'], max_attempts=given['policy'].max_attempts + 1)",
        ),
        quick=True,
    ),
    _mutant(
        "minute-late",
        "lateness",
        wrapped(FIRING, "fire_entry", before=REPLACE, after="result = replace(result, due_ms=result.due_ms + 60_000)"),
        quick=True,
    ),
    _mutant("timeouts-ignored", "lateness", returning("worker/run.py", "timeout_of", "3600.0")),
    _mutant(
        "start-deadlines-ignored",
        "start deadline, completeness",
        returning(FIRING, "_past_deadline", "False"),
        wrapped(
            PRE_START_CHECK,
            "PreStartCheck.passes",
            before=REPLACE + "; run = given['run']; run.dispatch = replace(run.dispatch, start_deadline_sec=None)",
        ),
    ),
    _mutant(
        "catch-up-none",
        "completeness",
        wrapped(
            FIRING,
            "_catch_up",
            before=f"""
                {REPLACE}
                job = given['job']
                none = replace(job.spec.catch_up, policy=CatchUpPolicy.NONE)
                given['job'] = replace(job, spec=replace(job.spec, catch_up=none))
            """,
        ),
    ),
    _mutant(
        "triggers-dropped",
        "outcome",
        wrapped(
            "intake/job_service.py",
            "JobService.trigger",
            after="""
                gone = Change(cancel=((result.execution_id, "dropped"),))
                await self._jobs.edit(
                    given["caller"].tenant, given["job_id"], lambda before: gone, show=[result.execution_id]
                )
            """,
        ),
    ),
    _mutant(
        "backfill-forgets-one",
        "completeness",
        wrapped(EDITS, "backfill", before=REPLACE, after="result = replace(result, executions=result.executions[:-1])"),
    ),
    _mutant(
        "tenant-filter-dropped",
        "tenancy",
        query("drivers/sqlite/sql/jobs.sql", "snapshot", "tenant = ?1 AND ", "?1 IS NOT NULL AND "),
    ),
    _mutant("report-fence-off", "I6, I7", returning(SETTLING, "_is_current", "True"), kind="cut workers off"),
    _mutant(
        "sweeper-off", "lateness, completeness, I1", returning(SWEEPER, "Sweeper._sweep_overdue", "0"), kind="cluster"
    ),
    _mutant("adoption-off", "lateness, I1", returning(SWEEPER, "Sweeper._adopt_unsealed", "0"), kind="die after fire"),
    _mutant(
        "orphan-recovery-off", "lateness, I1", returning(SWEEPER, "Sweeper._requeue_orphans", "0"), kind="lose messages"
    ),
    # The jobs of handlers.
    _mutant("children-dropped", "children", returning(SETTLING, "_keeps_children", "False"), quick=True),
    _mutant(
        "children-of-failures",
        "children",
        returning(SETTLING, "_keeps_children", "True"),
        wrapped(
            "worker/run.py",
            "Run._children",
            after="""
                kept = self.context._children if self.context else None
                result = (kept.encoded(), len(kept)) if kept else result
            """,
        ),
    ),
    _mutant(
        "children-of-snoozes-are-the-same",
        "children",
        wrapped("model/child_job.py", "child_of", before="given['dispatch'] = 1"),
    ),
    _mutant(
        "children-taken-before-they-are-created",
        "children",
        wrapped(
            "intake/job_service.py",
            "JobService.create_children",
            before="await given['create']([], upsert=lambda before, new: None, audit=None)",
        ),
    ),
    # Other ways to break promises.
    _mutant(
        "hint-of-new-job-lost",
        "lateness",
        returning("intake/change_sender.py", "ChangeSender.send_new", "None"),
        quick=True,
    ),
    _mutant(
        "hint-of-retry-lost",
        "lateness",
        wrapped(
            "recorder/recorder.py",
            "Recorder._follow_up",
            before=REPLACE + "; given['settled'] = replace(given['settled'], entries=())",
        ),
        quick=True,
    ),
    _mutant(
        "usage-counted-twice",
        "I20",
        wrapped("model/usage.py", "usage_of", before="given['reports'] = [*given['reports'], *given['reports']]"),
        quick=True,
    ),
    _mutant(
        "wrong-lane",
        "priority",
        wrapped(FIRING, "fire_entry", before=REPLACE, after="result = replace(result, lane=2 - result.lane)"),
        quick=True,
    ),
    _mutant(
        "catch-up-off-by-one",
        "completeness",
        wrapped(FIRING, "_catch_up", before=REPLACE, after="result = replace(result, fires=result.fires[1:])"),
        quick=True,
    ),
    _mutant(
        "catch-up-forgets-decision",
        "completeness",
        wrapped(FIRING, "_catch_up", before=REPLACE, after="result = replace(result, decisions=())"),
    ),
    _mutant(
        "cap-ignored",
        "I13",
        returning("model/slots.py", "caps_of_tenant", "{}"),
    ),
    _mutant("key-ignored", "I13", returning(FIRE_BATCH, "FireBatch._has_room", "True")),
    _mutant("slot-not-freed", "I13", returning(WRITE_SET, "WriteSet.free_slots", "None")),
    _mutant("overlap-ignored", "I12", returning(FIRING, "decide_overlap", "(Start.NOW, False)"), quick=True),
    _mutant("buffered-never-starts", "I12", returning(WRITE_SET, "WriteSet.finish", "None")),
    _mutant("retry-without-delay", "retry delay", wrapped("model/retry.py", "wait_ms", after="result = 0"), quick=True),
    _mutant(
        "snooze-spends-attempt",
        "I5",
        wrapped(
            EXECUTION,
            "judge",
            before=REPLACE,
            after="result = replace(result, attempt=1) if result and given['outcome'] is Outcome.SNOOZED else result",
        ),
        quick=True,
    ),
    _mutant(
        "starts-early",
        "I9",
        wrapped(FIRING, "fire_entry", before=REPLACE, after="result = replace(result, due_ms=result.due_ms - 100)"),
        quick=True,
    ),
    _mutant(
        "pause-keeps-firing",
        "completeness, I10",
        wrapped(EDITS, "pause", before=REPLACE, after="result = replace(result, fire=None) if result.job else result"),
    ),
    _mutant("dead-letter-without-incident", "I21", returning(SETTLING, "_incident", "None"), quick=True),
    _mutant(
        "lost-after-two-ticks", "I15", constant("model/liveness.py", "TICKS_TO_JUDGE", "2"), kind="cut workers off"
    ),
    _mutant(
        "deleted-job-fires-on",
        "completeness, I10",
        wrapped(EDITS, "delete", before=REPLACE, after="result = replace(result, fire=None) if result.job else result"),
    ),
    _mutant(
        "edit-plans-an-instant-that-is-none",
        "completeness",
        wrapped(
            EDITS,
            "_replanned",
            before=REPLACE,
            after="result = (replace(result[0], nominal_ms=result[0].nominal_ms + 1), result[1])",
        ),
    ),
    _mutant(
        "payload-of-trigger-lost",
        "I11",
        wrapped("intake/triggers.py", "trigger", before="given['payload'] = None"),
        quick=True,
    ),
    _mutant(
        "force-ignored",
        "force",
        wrapped("intake/triggers.py", "trigger", before="given['force'] = False"),
    ),
    _mutant(
        "skips-ignored",
        "skip",
        wrapped(FIRING, "plan_fire", before=REPLACE + "; given['job'] = replace(given['job'], skips=())"),
        quick=True,
    ),
    _mutant(
        "skips-forgotten",
        "skip",
        returning(LEFT_OUT, "skips_in_force", "()"),
    ),
    _mutant(
        "until-ignored",
        "until",
        returning(RESUMER, "Resumer.run_once", "0"),
        first=26,
        quick=True,
    ),
    _mutant(
        "until-forgotten",
        "until",
        wrapped(
            EDITS,
            "pause",
            before=REPLACE,
            after="result = replace(result, job=replace(result.job, paused_until_ms=None)) if result.job else result",
        ),
        first=26,
    ),
    _mutant(
        "resumed-ahead-of-the-end",
        "until, I10",
        wrapped(RESUMER, "Resumer.run_once", before="given['now_ms'] += 2_000"),
        first=26,
    ),
    _mutant(
        "resumed-by-a-replaced-end",
        "until",
        wrapped(
            "intake/ends_of_pauses.py", "with_end_of_pause", before="given['until_ms'] = given['job'].paused_until_ms"
        ),
        first=26,
        most=200,
    ),
    _mutant(
        "move-fires-twice",
        "move",
        wrapped(
            LEFT_OUT,
            "left_out_from",
            after="result = tuple(each for each in result if not hasattr(each, 'to_ms'))",
        ),
        first=26,
        quick=True,
    ),
    _mutant(
        "move-forgotten",
        "completeness",
        wrapped(LEFT_OUT, "schedule_of", before=REPLACE + "; given['job'] = replace(given['job'], moves=())"),
        first=26,
        quick=True,
    ),
    # Rules that random runs exercise too rarely, and directed runs exercise.
    _mutant(
        "order-ignored",
        "I22",
        returning(FIRE_BATCH, "FireBatch._is_in_front", "True"),
        kind="ordering keys",
        quick=True,
    ),
    _mutant(
        "cancel-forgotten-on-failure",
        "I10",
        wrapped(EXECUTION, "judge", before="given['cancel_requested'] &= given['outcome'] not in _FAILED"),
        kind="requests before failure",
        quick=True,
    ),
    _mutant(
        "operation-without-receipts",
        "operation",
        wrapped(
            "intake/operation_items.py",
            "OperationItems._change",
            before=REPLACE + "; import uuid; given['operation'] = replace(given['operation'], id=str(uuid.uuid4()))",
        ),
        kind="bulk operation is killed",
        quick=True,
    ),
    _mutant(
        "operation-forgets-its-batch",
        "operation",
        wrapped(
            "intake/operation_runner.py",
            "OperationRunner._take_again",
            after=REPLACE + "; result = replace(result, batch=()) if result else None",
        ),
        kind="bulk operation is killed",
        quick=True,
    ),
    _mutant(
        "revocation-ignored",
        "I10",
        wrapped(PRE_START_CHECK, "PreStartCheck.passes", before="given['reasons'] = {}"),
        kind="requests before start",
        quick=True,
    ),
    _mutant(
        "edit-keeps-old-payload",
        "I11",
        wrapped(
            WRITE_SET,
            "rebased",
            before=REPLACE,
            after="result = replace(result, revision=given['was'].revision)",
        ),
        kind="requests before start",
        quick=True,
    ),
    _mutant(
        "claim-ignored",
        "I8",
        wrapped(
            "worker/claims.py",
            "Claims._ask",
            after="""
                asked = zip(given["runs"], result)
                now_ms = self._clock.now_ms()
                result = [Token(run.dispatch.number, now_ms) if isinstance(a, ClaimRefused) else a for run, a in asked]
            """,
        ),
        kind="workers come and go",
        quick=True,
    ),
    _mutant(
        "ack-before-report",
        "I14",
        wrapped(
            "worker/reporting.py",
            "Reporter._send_ended",
            before="""
                ended = [run.dispatch for run in self._ended]
                if ended:
                    await self._acks._signals.ack([(dispatch.execution_id, dispatch.number) for dispatch in ended])
                    await self._bus.mark_processed(self._acks._membership.id, ended)
            """,
        ),
        kind="workers come and go",
        quick=True,
    ),
    _mutant(
        "epoch-not-compared",
        "I5",
        wrapped(
            SQLITE_FIRING,
            "_Fire.fire",
            before=REPLACE + "; self.owner = replace(self.owner, epochs=_epochs(self.conn))",
        ),
        kind="owner wakes in its fire",
    ),
    _mutant(
        "settled-twice",
        "I7, I20",
        query(EXECUTIONS_SQL, "succeed", "state < 2", "state < 6"),
        query(EXECUTIONS_SQL, "succeed_without_result", "state < 2", "state < 6"),
        kind="answers to reports are lost",
        quick=True,
    ),
    _mutant(
        "stale-entry-fires",
        "completeness, I2, I3",
        wrapped(
            SQLITE_FIRING,
            "_Fire._drop_stale",
            after="""
                rows = rows_of(self.conn, SQL.present, as_json([request.entry.key for request in given["requests"]]))
                waiting = {row[1] for row in rows if row[0] is not None}
                result = [request for request in given["requests"] if request.entry.key in waiting]
            """,
        ),
        kind="requests before start",
    ),
    _mutant("timeline-row-kept", "I3", returning(WRITTEN_ROWS, "WrittenRows.drop", "None"), quick=True),
    _mutant(
        "lost-worker-never-judged",
        "I1",
        returning("model/liveness.py", "Liveness.silent", "[]"),
        kind="die before report",
    ),
    _mutant(
        "answered-before-commit",
        "I18",
        wrapped(
            SQLITE_FIRING,
            "SqliteFiring.fire",
            before="""
                import asyncio

                def fire(conn):
                    return _Fire(conn, given["owner"], given["now_ms"], self._lead_ms).fire(given["firings"])

                def try_out(conn):
                    conn.execute("SAVEPOINT trial")
                    fired = fire(conn)
                    conn.execute("ROLLBACK TO trial")
                    conn.execute("RELEASE trial")
                    return fired

                async def commit_later():
                    await asyncio.sleep(0.05)
                    await self._database.write(fire)

                fired = await self._database.write(try_out)
                self._later = asyncio.create_task(commit_later())
                return fired
            """,
        ),
    ),
    _mutant(
        "log-recovery-off",
        "lateness, I1",
        query(EXECUTIONS_SQL, "dispatched", "x.state < 2 AND", "x.state > 8 AND"),
    ),
    _mutant("spread-ignored", "I9", returning("model/job.py", "spread_ms", "0")),
    _mutant("snooze-without-delay", "retry delay", wrapped(EXECUTION, "judge", before="given['snooze_ms'] = 0")),
    _mutant(
        "resume-keeps-retries-held",
        "I4, I1",
        wrapped(EDITS, "resume", before=REPLACE, after="result = replace(result, release=())"),
    ),
    _mutant(
        "delete-spares-what-waits",
        "I10",
        wrapped(EDITS, "delete", before=REPLACE, after="result = replace(result, cancel=())"),
    ),
    _mutant(
        "decision-covers-what-fires",
        "I2",
        wrapped(
            FIRING,
            "_catch_up",
            before=REPLACE,
            after="""
                if result.fires and result.decisions:
                    wider = replace(result.decisions[0], to_ms=result.fires[0])
                    result = replace(result, decisions=(wider,))
            """,
        ),
    ),
    _mutant("hydrator-off", "lateness", returning("scheduler/hydrator.py", "Hydrator.run_once", "0")),
    _mutant(
        "tokens-of-skipped-entries-lost",
        "lateness",
        returning("scheduler/allowances.py", "Allowances.give_back_unused", "None"),
        first=205,
        most=5,
        quick=True,
    ),
    _mutant(
        "rate-at-half-speed",
        "lateness",
        wrapped(
            "model/rate.py",
            "take",
            before="from noonday.model.rate import Rate; given['rate'] = Rate(given['rate'].per_sec / 2, given['rate'].burst)",
        ),
        first=16,
        most=210,
    ),
    _mutant(
        "send-key-ignored",
        "N2, N14",
        returning("model/notifications/send_keys.py", "judge_take", "KeyTake.TAKEN"),
        kind="notifications",
        quick=True,
    ),
    _mutant(
        "send-key-released-after-send",
        "N14",
        wrapped(
            NOTIFICATION_RECORDER,
            "NotificationRecorder._settle_key",
            before=REPLACE + "; given['result'] = replace(given['result'], key=KeySettlement.RELEASE)",
        ),
        kind="notifications",
    ),
    _mutant(
        "fallback-after-unknown",
        "N2",
        returning(
            SENDING, "NotificationSender._unknown", "self._next_channel(attempt, self._clock.now_ms(), 'unknown')"
        ),
        kind="notifications",
        quick=True,
    ),
    _mutant(
        "notification-early",
        "N3",
        wrapped(
            "notifications/dispatching.py",
            "dispatch_of",
            before=REPLACE,
            after="result = replace(result, due_ms=result.due_ms - 2_000)",
        ),
        kind="notifications",
        quick=True,
    ),
    _mutant(
        "expiry-ignored",
        "N1",
        wrapped(
            SENDING,
            "NotificationSender.send",
            before=REPLACE
            + "; n = given['dispatch'].notification"
            + "; given['dispatch'] = replace(given['dispatch'], notification=replace(n, expires_ms=1 << 60))",
        ),
        kind="notifications",
    ),
    _mutant(
        "next-dispatch-lost",
        "N1",
        returning(NOTIFICATION_RECORDER, "NotificationRecorder._following", "()"),
        kind="notifications",
        quick=True,
    ),
)
