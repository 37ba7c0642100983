-- name: checkpoint
-- Return the checkpoint of a log partition.
SELECT partition, generation, next_offset AS "offset", tick_ms FROM checkpoints WHERE partition = $1;

-- name: oldest_tick
-- Return the last tick applied on the log partition that is furthest behind.
SELECT min(tick_ms) FROM checkpoints;

-- name: settle
-- Settle a batch of the log: move the checkpoint, settle simple successes, write what was decided for the rest, and add usage.
SELECT settle($1, $2, $3, $4, $5, $6, $7, $8::uuid[], $9::integer[], $10::text[], $11::bigint[], $12::bigint[], $13::bytea[],
              $14::bytea[], $15::jsonb, $16, $17::jsonb, $18::jsonb)::text[];

-- name: find
-- Return some executions and the versions of their rows.
SELECT coalesce(jsonb_agg(versioned_json(x, x.xmin)), '[]')::text
FROM unnest($1::uuid[]) e (id) JOIN executions x ON x.id = e.id;

-- name: keep_progress
-- Save the progress that running handlers reported.
UPDATE executions x SET progress = e.progress
FROM unnest($1::uuid[], $2::integer[], $3::text[], $4::bytea[]) e (id, dispatch, worker, progress)
WHERE x.id = e.id AND x.dispatch = e.dispatch AND x.worker_id || '' = e.worker AND x.state + 0 = 1;

-- name: register_worker
-- Insert a worker, or mark it as alive.
INSERT INTO workers (id, partition, host, pid, concurrency, handlers, started_ms, seen_ms, state)
VALUES ($1, $2, $3, $4, $5, $6, $7, $7, 'ALIVE')
ON CONFLICT (id) DO UPDATE
SET seen_ms = greatest(workers.seen_ms, excluded.seen_ms), state = 'ALIVE', concurrency = excluded.concurrency,
    handlers = excluded.handlers;

-- name: register_pool
-- Insert a pool that a worker has registered. It stays when the worker leaves.
INSERT INTO pools (name, settings) VALUES ($1, '{}') ON CONFLICT DO NOTHING;

-- name: register_handler
-- Save the declaration of a handler by the newest worker.
INSERT INTO handlers (pool, name, info) VALUES ($1, $2, $3)
ON CONFLICT (pool, name) DO UPDATE SET info = excluded.info WHERE handlers.info <> excluded.info;

-- name: note_heartbeat
-- Note a heartbeat of a worker.
UPDATE workers SET seen_ms = greatest(seen_ms, $2), stuck = $3, state = 'ALIVE' WHERE id = $1;

-- name: set_worker_state
-- Set the state of a worker that left or is lost.
UPDATE workers SET state = $2, seen_ms = greatest(seen_ms, $3) WHERE id = $1;

-- name: workers_to_judge
-- Return the workers of a log partition that count as alive or have RUNNING executions.
SELECT id FROM workers WHERE state = 'ALIVE' AND partition = $1
UNION
SELECT x.worker_id FROM (SELECT DISTINCT worker_id FROM executions WHERE state = 1) x LEFT JOIN workers w ON w.id = x.worker_id
WHERE coalesce(w.partition, $1) = $1;

-- name: running_of_workers
-- Return the running executions of some workers and the versions of their rows.
SELECT coalesce(jsonb_agg(versioned_json(x, x.xmin)), '[]')::text
FROM unnest($1::text[]) e (id) JOIN executions x ON x.worker_id = e.id AND x.state = 1;

-- name: running_of_partition
-- Return the running executions of the workers of a log partition and the versions of their rows.
SELECT coalesce(jsonb_agg(versioned_json(x, x.xmin)), '[]')::text
FROM executions x LEFT JOIN workers w ON w.id = x.worker_id
WHERE x.state = 1 AND coalesce(w.partition, $1) = $1;

-- name: dispatched
-- Return all dispatched executions that are not known to have started, and the versions of their rows.
SELECT coalesce(jsonb_agg(versioned_json(x, x.xmin)), '[]')::text
FROM executions x WHERE x.state = 0 AND x.worker_id IS NULL AND x.fired_ms IS NOT NULL;

-- name: note_generation
-- Note the generation of the log. Returns no row if it was noted before.
INSERT INTO meta (key, value) VALUES ('log_generation', $1)
ON CONFLICT (key) DO UPDATE SET value = excluded.value WHERE meta.value <> excluded.value
RETURNING 1;

-- name: forget_batches
-- Delete all batches. The topics lost their memory, and what was in them is back on the timeline.
DELETE FROM batches;

-- name: lose_all_workers
-- Mark all workers of a log partition as lost, because they belong to the former log.
UPDATE workers SET state = 'LOST' WHERE partition = $1 AND state = 'ALIVE';

-- name: keep_attempts
-- Insert attempt records.
INSERT INTO attempt_records (execution_id, dispatch, started_ms, ended_ms, attempt, outcome, details)
SELECT * FROM unnest(:execution_id::uuid[], :dispatch::integer[], :started_ms::bigint[], :ended_ms::bigint[], :attempt::integer[],
                     :outcome::smallint[], :details::bytea[])
ON CONFLICT DO NOTHING;

-- name: keep_logs
-- Insert the log lines of attempts whose execution is stored. Deletes those of dispatches that came a number of dispatches or
-- more before.
WITH reported AS MATERIALIZED (
    SELECT * FROM unnest(:execution_id::uuid[], :dispatch::integer[], :started_ms::bigint[], :ended_ms::bigint[],
                         :attempt::integer[], :outcome::smallint[], :logs::bytea[])
                  AS e (execution_id, dispatch, started_ms, ended_ms, attempt, outcome, logs)
), kept AS (
    INSERT INTO attempt_logs (execution_id, dispatch, started_ms, ended_ms, attempt, outcome, logs)
    SELECT e.* FROM reported e WHERE EXISTS (SELECT 1 FROM executions x WHERE x.id = e.execution_id OFFSET 0)
    ON CONFLICT DO NOTHING
)
DELETE FROM attempt_logs l USING reported e WHERE l.execution_id = e.execution_id AND l.dispatch <= e.dispatch - $8::integer;

-- name: attempt_records
-- Return the attempt records of an execution.
SELECT dispatch, attempt, outcome, started_ms, ended_ms, details FROM attempt_records WHERE execution_id = $1::uuid
ORDER BY dispatch, started_ms;

-- name: incidents
-- Return the oldest incidents that are not handled yet.
SELECT id, kind, tenant, execution_id, job_id, message, at_ms FROM incidents ORDER BY id LIMIT $1;

-- name: revocations
-- Return the revoked dispatches of a pool that are open or ended after an instant.
SELECT id::text AS execution_id, dispatch, revocation AS reason FROM executions
WHERE revocation IS NOT NULL AND pool = $1 AND coalesce(finished_ms, 9000000000000000) > $2 AND fired_ms IS NOT NULL;

-- name: drop_executions
-- Delete executions that are past retention, up to a limit, with their dead letters, attempt records and log lines. An id
-- begins with the nominal time of the occurrence.
WITH old AS MATERIALIZED (
    SELECT array_agg(id) AS ids FROM (
        SELECT id FROM executions WHERE id < $1::uuid AND state = ANY ($2::smallint[]) AND finished_ms < $3 ORDER BY id LIMIT $4) page
), gone AS (
    DELETE FROM executions x USING unnest((SELECT ids FROM old)::uuid[]) e (id) WHERE x.id = e.id RETURNING 1
), dead_gone AS (
    DELETE FROM dead WHERE execution_id = ANY ((SELECT ids FROM old)::uuid[])
), records_gone AS (
    DELETE FROM attempt_records WHERE execution_id = ANY ((SELECT ids FROM old)::uuid[])
), logs_gone AS (
    DELETE FROM attempt_logs WHERE execution_id = ANY ((SELECT ids FROM old)::uuid[])
), never_reported AS (
    DELETE FROM unreported WHERE execution_id = ANY ((SELECT ids FROM old)::uuid[])
)
SELECT count(*) FROM gone;

-- name: old_executions_except
-- Scan a page of executions after a mark. Returns those that `drop_executions` would delete, without exempt tenants, and the
-- next mark: the last id to delete if there are too many for one step, else the last id of the page.
WITH looked_at AS MATERIALIZED (
    SELECT id, tenant, state, finished_ms FROM executions WHERE id > $5::uuid AND id < $1::uuid ORDER BY id LIMIT $6
), old AS MATERIALIZED (
    SELECT id FROM looked_at
    WHERE state = ANY ($2::smallint[]) AND finished_ms < $3 AND tenant <> ALL ($7::text[]) ORDER BY id LIMIT $4
)
SELECT ARRAY(SELECT id::text FROM old) AS ids,
       CASE WHEN (SELECT count(*) FROM old) = $4 THEN (SELECT id::text FROM old ORDER BY id DESC LIMIT 1)
            ELSE (SELECT id::text FROM looked_at ORDER BY id DESC LIMIT 1) END AS mark;

-- name: jobs_of
-- Return a page of jobs of a tenant after a mark.
SELECT id::text FROM jobs WHERE tenant = $1 AND id > $2::uuid ORDER BY id LIMIT $3;

-- name: old_executions_of
-- Return ended executions of some jobs that are past retention, up to a limit.
SELECT x.id::text
FROM unnest($1::uuid[]) e (id) CROSS JOIN LATERAL (
    SELECT x.id FROM executions x
    WHERE (x.job_id, x.id) >= (e.id, '00000000-0000-0000-0000-000000000000') AND (x.job_id, x.id) < (e.id, $2::uuid)
          AND x.id < $2 AND x.state >= 5 AND x.finished_ms < $3
    ORDER BY x.job_id, x.id LIMIT $4) x
LIMIT $4;

-- name: drop_executions_by_id
-- Delete some executions with their dead letters, attempt records, log lines and unreported completions.
WITH gone AS (
    DELETE FROM executions x USING unnest($1::uuid[]) e (id) WHERE x.id = e.id RETURNING 1
), dead_gone AS (
    DELETE FROM dead WHERE execution_id = ANY ($1)
), records_gone AS (
    DELETE FROM attempt_records WHERE execution_id = ANY ($1)
), logs_gone AS (
    DELETE FROM attempt_logs WHERE execution_id = ANY ($1)
), never_reported AS (
    DELETE FROM unreported WHERE execution_id = ANY ($1)
)
SELECT count(*) FROM gone;

-- name: drop_decisions
-- Delete decisions that are past retention.
WITH gone AS (
    DELETE FROM decisions WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM decisions WHERE decided_ms < $1 ORDER BY decided_ms LIMIT $2)) RETURNING 1
)
SELECT count(*) FROM gone;

-- name: drop_audit
-- Delete audit entries that are past retention. Ids grow with time, so only the first ones are read.
WITH gone AS (
    DELETE FROM audit WHERE id IN
        (SELECT id FROM (SELECT id, at_ms FROM audit ORDER BY id LIMIT $2) first WHERE at_ms < $1) RETURNING 1
)
SELECT count(*) FROM gone;

-- name: drop_receipts
-- Delete responses saved under Idempotency-Keys that are past retention.
WITH gone AS (
    DELETE FROM receipts WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM receipts WHERE at_ms < $1 ORDER BY at_ms LIMIT $2)) RETURNING 1
)
SELECT count(*) FROM gone;

-- name: drop_usage
-- Delete the usage of days that are past retention.
WITH gone AS (
    DELETE FROM usage WHERE ctid = ANY (ARRAY(SELECT ctid FROM usage WHERE day < $1 ORDER BY day LIMIT $2)) RETURNING 1
)
SELECT count(*) FROM gone;

-- name: drop_unused_revisions
-- Delete revisions that no open execution was fired with.
WITH gone AS (
    DELETE FROM revisions WHERE (job_id, revision) IN
        (SELECT r.job_id, r.revision FROM revisions r
         WHERE NOT EXISTS (SELECT 1 FROM executions x WHERE x.job_id = r.job_id AND x.state < 2 AND x.revision = r.revision)
         LIMIT $1) RETURNING 1
)
SELECT count(*) FROM gone;

-- name: drop_workers
-- Delete workers that left long ago.
DELETE FROM workers WHERE state <> 'ALIVE' AND seen_ms < $1;

-- name: jobs_page
-- Return a page of jobs after a mark: when each last changed, and whether it ended before an instant and has no execution
-- left.
SELECT j.tenant, j.id::text AS id,
       j.updated_ms < $3 AND j.state <> 1
       AND (j.state = 2 OR NOT EXISTS (SELECT 1 FROM timeline t WHERE t.key = j.id AND t.due_ms IS NOT NULL OFFSET 0))
       AND NOT EXISTS (SELECT 1 FROM executions x WHERE x.job_id = j.id OFFSET 0) AS is_over
FROM (SELECT tenant, id, updated_ms, state FROM jobs WHERE (tenant, id) > ($1, $2::uuid) ORDER BY tenant, id LIMIT $4) j;

-- name: drop_jobs
-- Delete jobs that nothing refers to any more, with their revisions and fire rows. Returns how many were deleted.
SELECT drop_ended_jobs($1::text[], $2::uuid[], $3::bigint[]);

-- name: lock_partitions
-- Try the lock under which one process creates and drops partitions.
SELECT pg_try_advisory_xact_lock(4771262218590114 + hashtext(current_schema()));

-- name: make_partitions
-- Create partitions for the executions of the coming days.
SELECT make_partitions($1, $2);

-- name: drop_partitions
-- Drop empty partitions of days before an instant.
SELECT drop_partitions($1);
