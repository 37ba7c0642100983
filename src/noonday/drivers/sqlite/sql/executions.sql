-- name: checkpoint
-- Return the checkpoint of a log partition.
SELECT partition, generation, next_offset AS "offset", tick_ms FROM checkpoints WHERE partition = ?1;

-- name: oldest_tick
-- Return the last tick applied on the log partition that is furthest behind.
SELECT min(tick_ms) FROM checkpoints;

-- name: add_checkpoint
-- Insert the first checkpoint of a log partition.
INSERT INTO checkpoints (partition, generation, next_offset, tick_ms, recent) VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING;

-- name: move_checkpoint
-- Move a checkpoint by compare-and-set. Changes nothing if another recorder has moved it.
UPDATE checkpoints SET generation = ?4, next_offset = ?5, tick_ms = ?6, recent = ?7
WHERE partition = ?1 AND generation = ?2 AND next_offset = ?3;

-- name: succeed_without_result
-- Settle simple successes of one worker that have neither result nor progress.
UPDATE executions
SET state = 5, worker_id = ?2, started_ms = iif(state = 0, e.value ->> 'started_ms', started_ms), finished_ms = e.value ->> 'ended_ms',
    failure = NULL, result = NULL,
    transitions = transitions || iif(state = 0, ',[1,' || (e.value ->> 'started_ms') || ',"' || ?2 || '"]', '')
                              || ',[5,' || (e.value ->> 'ended_ms') || ']'
FROM json_each(?1) e
WHERE executions.job_id = e.value ->> 'job_id' AND executions.id = e.value ->> 'id' AND dispatch = e.value ->> 'dispatch' AND state < 2
      AND fired_ms IS NOT NULL AND watch = 0 AND (worker_id IS NULL OR worker_id = ?2);

-- name: succeed
-- Settle simple successes: dispatched, not watched, and bound to the reporting worker or to none.
UPDATE executions
SET state = 5, worker_id = e.value ->> 'worker_id', started_ms = iif(state = 0, e.value ->> 'started_ms', started_ms),
    finished_ms = e.value ->> 'ended_ms', failure = NULL, result = e.value ->> 'result',
    progress = coalesce(e.value ->> 'progress', progress),
    transitions = transitions || iif(state = 0, e.value ->> 'start', '') || (e.value ->> 'end')
FROM json_each(?1) e
WHERE executions.id = e.value ->> 'id' AND dispatch = e.value ->> 'dispatch' AND state < 2 AND fired_ms IS NOT NULL AND watch = 0
      AND (worker_id IS NULL OR worker_id = e.value ->> 'worker_id');

-- name: find
-- Return some executions.
SELECT json_group_array(json(x.json))
FROM json_each(?1) e CROSS JOIN execution_rows x ON x.id = e.value;

-- name: any_slots
-- Return a row if any slot is counted or capped.
SELECT 1 FROM slots LIMIT 1;

-- name: add_usage
-- Add to the usage of tenants.
INSERT INTO usage (tenant, day, runs, succeeded, failed, run_ms, payload_bytes)
SELECT value ->> 'tenant', value ->> 'day', value ->> 'runs', value ->> 'succeeded', value ->> 'failed', value ->> 'run_ms',
       value ->> 'payload_bytes'
FROM json_each(?1) WHERE true
ON CONFLICT (tenant, day) DO UPDATE
SET runs = runs + excluded.runs, succeeded = succeeded + excluded.succeeded, failed = failed + excluded.failed,
    run_ms = run_ms + excluded.run_ms, payload_bytes = payload_bytes + excluded.payload_bytes;

-- name: keep_progress
-- Save the progress that running handlers reported.
UPDATE executions SET progress = e.value ->> 'progress'
FROM json_each(?1) e
WHERE executions.id = e.value ->> 'execution_id' AND dispatch = e.value ->> 'dispatch' AND worker_id = ?2 AND state = 1;

-- name: register_worker
-- Insert a worker, or mark it as alive.
INSERT INTO workers (id, partition, host, pid, concurrency, handlers, started_ms, seen_ms, state)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7, 'ALIVE')
ON CONFLICT (id) DO UPDATE
SET seen_ms = max(seen_ms, excluded.seen_ms), state = 'ALIVE', concurrency = excluded.concurrency, handlers = excluded.handlers;

-- name: register_pool
-- Insert a pool that a worker has registered. It stays when the worker leaves.
INSERT INTO pools (name, settings) VALUES (?1, '{}') ON CONFLICT DO NOTHING;

-- name: register_handler
-- Save the declaration of a handler by the newest worker.
INSERT INTO handlers (pool, name, info) VALUES (?1, ?2, ?3) ON CONFLICT (pool, name) DO UPDATE SET info = excluded.info;

-- name: note_heartbeat
-- Note a heartbeat of a worker.
UPDATE workers SET seen_ms = max(seen_ms, ?2), stuck = ?3, state = 'ALIVE' WHERE id = ?1;

-- name: set_worker_state
-- Set the state of a worker that left or is lost.
UPDATE workers SET state = ?2, seen_ms = max(seen_ms, ?3) WHERE id = ?1;

-- name: workers_to_judge
-- Return the workers of a log partition that count as alive or have RUNNING executions.
SELECT id FROM workers WHERE state = 'ALIVE' AND partition = ?1
UNION
SELECT x.worker_id FROM executions x LEFT JOIN workers w ON w.id = x.worker_id
WHERE x.state = 1 AND coalesce(w.partition, ?1) = ?1;

-- name: running_of_workers
-- Return the running executions of some workers.
SELECT json_group_array(json(x.json))
FROM json_each(?1) e CROSS JOIN execution_rows x ON x.worker_id = e.value AND x.state = 1;

-- name: dispatched
-- Return all open executions that are dispatched.
SELECT json_group_array(json(x.json))
FROM execution_rows x WHERE x.state < 2 AND x.fired_ms IS NOT NULL;

-- name: forget_batches
-- Delete all batches. The topics lost their memory, and what was in them is back on the timeline.
DELETE FROM batches;

-- name: lose_all_workers
-- Mark all workers of a log partition as lost, because they belong to the former log.
UPDATE workers SET state = 'LOST' WHERE partition = ?1 AND state = 'ALIVE';

-- name: keep_attempts
-- Insert attempt records, one row of values per attempt.
INSERT OR IGNORE INTO attempt_records (execution_id, dispatch, started_ms, ended_ms, attempt, outcome, details)
VALUES (:execution_id, :dispatch, :started_ms, :ended_ms, :attempt, :outcome, :details);

-- name: attempt_records
-- Return the attempt records of an execution.
SELECT dispatch, attempt, outcome, started_ms, ended_ms, details FROM attempt_records WHERE execution_id = ?1
ORDER BY dispatch, started_ms;

-- name: keep_logs
-- Insert the log lines of attempts whose execution is stored.
INSERT OR IGNORE INTO attempt_logs (execution_id, dispatch, started_ms, ended_ms, attempt, outcome, logs)
SELECT e.value ->> 'execution_id', e.value ->> 'dispatch', e.value ->> 'started_ms', e.value ->> 'ended_ms', e.value ->> 'attempt',
       e.value ->> 'outcome', e.value ->> 'logs'
FROM json_each(?1) e WHERE EXISTS (SELECT 1 FROM executions x WHERE x.id = e.value ->> 'execution_id');

-- name: drop_older_logs
-- Delete the log lines of dispatches that came a number of dispatches or more before those of these attempts.
DELETE FROM attempt_logs WHERE rowid IN
    (SELECT l.rowid FROM json_each(?1) e CROSS JOIN attempt_logs l
     ON l.execution_id = e.value ->> 'execution_id' AND l.dispatch <= (e.value ->> 'dispatch') - ?2);

-- name: drop_attempt_logs
-- Delete the log lines of deleted executions.
DELETE FROM attempt_logs WHERE execution_id IN (SELECT value FROM json_each(?1));

-- name: drop_attempt_records
-- Delete the attempt records of deleted executions.
DELETE FROM attempt_records WHERE execution_id IN (SELECT value FROM json_each(?1));

-- name: incidents
-- Return the oldest incidents that are not handled yet.
SELECT id, kind, tenant, execution_id, job_id, message, at_ms FROM incidents ORDER BY id LIMIT ?1;

-- name: revocations
-- Return the revoked dispatches of a pool that are open or ended after an instant.
SELECT id AS execution_id, dispatch, revocation AS reason
FROM executions
WHERE revocation IS NOT NULL AND pool = ?1 AND coalesce(finished_ms, 1 << 62) > ?2 AND fired_ms IS NOT NULL;

-- name: old_executions
-- Return a page of executions that are past retention. An id begins with the nominal time of the occurrence.
SELECT json_group_array(id)
FROM (SELECT id FROM executions
      WHERE id < ?1 AND state = ?2 AND finished_ms < ?3
      ORDER BY id LIMIT ?4);

-- name: old_executions_except
-- Scan a page of executions after a mark. Returns those of `old_executions`, without exempt tenants, and the last id of the
-- page.
SELECT json_group_array(id) FILTER (WHERE state = ?2 AND finished_ms < ?3 AND tenant NOT IN (SELECT value FROM json_each(?6)))
       AS ids,
       max(id) AS mark
FROM (SELECT id, tenant, state, finished_ms FROM executions WHERE id > ?5 AND id < ?1 ORDER BY id LIMIT ?4);

-- name: jobs_of
-- Return a page of jobs of a tenant after a mark.
SELECT json_group_array(id) FROM (SELECT id FROM jobs WHERE tenant = ?1 AND id > ?2 ORDER BY id LIMIT ?3);

-- name: old_executions_of
-- Return ended executions of some jobs that are past retention, up to a limit.
SELECT json_group_array(id)
FROM (SELECT x.id FROM json_each(?1) e CROSS JOIN executions x ON x.job_id = e.value AND x.id < ?2
      WHERE x.state >= 5 AND x.finished_ms < ?3 LIMIT ?4);

-- name: drop_executions
-- Delete executions.
DELETE FROM executions WHERE id IN (SELECT value FROM json_each(?1));

-- name: drop_dead
-- Delete the dead letters of deleted executions.
DELETE FROM dead WHERE execution_id IN (SELECT value FROM json_each(?1));

-- name: drop_decisions
-- Delete decisions that are past retention.
DELETE FROM decisions WHERE (job_id, from_ms, to_ms) IN
    (SELECT job_id, from_ms, to_ms FROM decisions WHERE decided_ms < ?1 LIMIT ?2);

-- name: drop_audit
-- Delete audit entries that are past retention. Ids grow with time, so only the first ones are read.
DELETE FROM audit WHERE id IN
    (SELECT id FROM (SELECT id, at_ms FROM audit ORDER BY id LIMIT ?2) WHERE at_ms < ?1);

-- name: drop_receipts
-- Delete responses saved under Idempotency-Keys that are past retention.
DELETE FROM receipts WHERE (tenant, key) IN (SELECT tenant, key FROM receipts WHERE at_ms < ?1 LIMIT ?2);

-- name: drop_usage
-- Delete the usage of days that are past retention.
DELETE FROM usage WHERE (tenant, day) IN (SELECT tenant, day FROM usage WHERE day < ?1 LIMIT ?2);

-- name: jobs_page
-- Return a page of jobs after a mark: when each last changed, and whether it ended before an instant and has no execution
-- left.
SELECT j.tenant, j.id, j.updated_ms,
       j.updated_ms < ?3 AND j.state <> 1
       AND (j.state = 2 OR NOT EXISTS (SELECT 1 FROM timeline t WHERE t.key = j.id AND t.due_ms IS NOT NULL))
       AND NOT EXISTS (SELECT 1 FROM executions x WHERE x.job_id = j.id) AS is_over
FROM (SELECT tenant, id, updated_ms, state FROM jobs WHERE (tenant, id) > (?1, ?2) ORDER BY tenant, id LIMIT ?4) j;

-- name: drop_jobs
-- Delete jobs that nothing refers to any more.
DELETE FROM jobs WHERE (tenant, id) IN (SELECT value ->> 'tenant', value ->> 'id' FROM json_each(?1));

-- name: drop_revisions
-- Delete the revisions of deleted jobs.
DELETE FROM revisions WHERE job_id IN (SELECT value ->> 'id' FROM json_each(?1));

-- name: drop_unused_revisions
-- Delete revisions that no open execution was fired with.
DELETE FROM revisions WHERE (job_id, revision) IN
    (SELECT r.job_id, r.revision FROM revisions r
     WHERE NOT EXISTS (SELECT 1 FROM executions x INDEXED BY executions_open
                       WHERE x.job_id = r.job_id AND x.state < 2 AND x.revision = r.revision)
     LIMIT ?1);

-- name: drop_fires
-- Delete the fire rows of deleted jobs, which have no due time.
DELETE FROM timeline WHERE key IN (SELECT value ->> 'id' FROM json_each(?1));

-- name: drop_workers
-- Delete workers that left long ago.
DELETE FROM workers WHERE state <> 'ALIVE' AND seen_ms < ?1;
