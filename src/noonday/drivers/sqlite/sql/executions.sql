-- name: place
-- How far the recorder of a partition has come.
SELECT partition, era, next, tick_ms FROM places WHERE partition = ?1;

-- name: oldest_tick
-- The last tick applied on the partition of the log that is furthest behind.
SELECT min(tick_ms) FROM places;

-- name: add_place
-- The first recorder of a partition.
INSERT INTO places (partition, era, next, tick_ms, recent) VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING;

-- name: move_place
-- Compare and set: nobody else has recorded in between.
UPDATE places SET era = ?4, next = ?5, tick_ms = ?6, recent = ?7 WHERE partition = ?1 AND era = ?2 AND next = ?3;

-- name: succeed_without_result
-- The plainest case, of one worker: nothing was returned, nothing was said.
UPDATE executions
SET state = 5, worker_id = ?2, started_ms = iif(state = 0, e.value ->> 3, started_ms), finished_ms = e.value ->> 4, failure = NULL,
    result = NULL,
    moves = moves || iif(state = 0, ',[1,' || (e.value ->> 3) || ',"' || ?2 || '"]', '') || ',[5,' || (e.value ->> 4) || ']'
FROM json_each(?1) e
WHERE executions.job_id = e.value ->> 0 AND executions.id = e.value ->> 1 AND dispatch = e.value ->> 2 AND state < 2
      AND fired_ms IS NOT NULL AND watch = 0 AND (worker_id IS NULL OR worker_id = ?2);

-- name: succeed
-- The plain case, all at once: handed out, nobody waits on it, this worker has it or nobody does.
UPDATE executions
SET state = 5, worker_id = e.value ->> 2, started_ms = iif(state = 0, e.value ->> 3, started_ms), finished_ms = e.value ->> 4,
    failure = NULL, result = e.value ->> 5, progress = coalesce(e.value ->> 6, progress),
    moves = moves || iif(state = 0, e.value ->> 7, '') || (e.value ->> 8)
FROM json_each(?1) e
WHERE executions.id = e.value ->> 0 AND dispatch = e.value ->> 1 AND state < 2 AND fired_ms IS NOT NULL AND watch = 0
      AND (worker_id IS NULL OR worker_id = e.value ->> 2);

-- name: find
-- Some executions as they are, with the due time of their dispatch row.
SELECT json_group_array(json_array(x.id, x.job_id, x.tenant, x.nominal_ms, x.due_ms, x.state, x.attempt, x.dispatch, x.revision,
                                   x.cause, x.pool, x.handler, x.lane, x.created_ms, x.fired_ms, x.buffered, x.watch, json(iif(x.state < 2, coalesce(x.slots, '[]'), '[]')),
                                   NULL, x.worker_id, x.started_ms, x.finished_ms, x.cancel, x.failure, NULL, NULL, x.retry_of))
FROM json_each(?1) e CROSS JOIN executions x ON x.id = e.value;

-- name: any_slots
-- Whether anything is limited at present.
SELECT 1 FROM slots LIMIT 1;

-- name: add_usage
-- Add to what tenants have used.
INSERT INTO usage (tenant, day, runs, succeeded, failed, run_ms, payload_bytes)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6 FROM json_each(?1) WHERE true
ON CONFLICT (tenant, day) DO UPDATE
SET runs = runs + excluded.runs, succeeded = succeeded + excluded.succeeded, failed = failed + excluded.failed,
    run_ms = run_ms + excluded.run_ms, payload_bytes = payload_bytes + excluded.payload_bytes;

-- name: keep_progress
-- What handlers said while they ran.
UPDATE executions SET progress = e.value ->> 2
FROM json_each(?1) e
WHERE executions.id = e.value ->> 0 AND dispatch = e.value ->> 1 AND worker_id = ?2 AND state = 1;

-- name: greet_worker
-- A worker is here.
INSERT INTO workers (id, partition, host, pid, concurrency, handlers, started_ms, seen_ms, state)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7, 'ALIVE')
ON CONFLICT (id) DO UPDATE
SET seen_ms = max(seen_ms, excluded.seen_ms), state = 'ALIVE', concurrency = excluded.concurrency, handlers = excluded.handlers;

-- name: greet_pool
-- A pool exists once a worker registered it, and stays.
INSERT INTO pools (name, settings) VALUES (?1, '{}') ON CONFLICT DO NOTHING;

-- name: greet_handler
-- What the newest worker says of a handler.
INSERT INTO handlers (pool, name, info) VALUES (?1, ?2, ?3) ON CONFLICT (pool, name) DO UPDATE SET info = excluded.info;

-- name: see_worker
-- A sign of life.
UPDATE workers SET seen_ms = max(seen_ms, ?2), stuck = ?3, state = 'ALIVE' WHERE id = ?1;

-- name: part_worker
-- A worker left, or is lost.
UPDATE workers SET state = ?2, seen_ms = max(seen_ms, ?3) WHERE id = ?1;

-- name: workers_to_judge
-- Workers of a partition of the log that are taken for alive or have RUNNING rows.
SELECT json_group_array(json_array(id))
FROM (SELECT id FROM workers WHERE state = 'ALIVE' AND partition = ?1
      UNION
      SELECT x.worker_id FROM executions x LEFT JOIN workers w ON w.id = x.worker_id
      WHERE x.state = 1 AND coalesce(w.partition, ?1) = ?1);

-- name: running_of_workers
-- What some workers run.
SELECT json_group_array(json_array(x.id, x.job_id, x.tenant, x.nominal_ms, x.due_ms, x.state, x.attempt, x.dispatch, x.revision,
                                   x.cause, x.pool, x.handler, x.lane, x.created_ms, x.fired_ms, x.buffered, x.watch, json(iif(x.state < 2, coalesce(x.slots, '[]'), '[]')),
                                   NULL, x.worker_id, x.started_ms, x.finished_ms, x.cancel, x.failure, NULL, NULL, x.retry_of))
FROM json_each(?1) e CROSS JOIN executions x ON x.worker_id = e.value AND x.state = 1;

-- name: handed_out
-- Everything open that is off the timeline.
SELECT json_group_array(json_array(x.id, x.job_id, x.tenant, x.nominal_ms, x.due_ms, x.state, x.attempt, x.dispatch, x.revision,
                                   x.cause, x.pool, x.handler, x.lane, x.created_ms, x.fired_ms, x.buffered, x.watch, json(iif(x.state < 2, coalesce(x.slots, '[]'), '[]')),
                                   NULL, x.worker_id, x.started_ms, x.finished_ms, x.cancel, x.failure, NULL, NULL, x.retry_of))
FROM executions x WHERE x.state < 2 AND x.fired_ms IS NOT NULL;

-- name: forget_batches
-- The topics lost their memory: what was in them is back on the timeline.
DELETE FROM batches;

-- name: part_all_workers
-- Nobody of the former log is here any more.
UPDATE workers SET state = 'LOST' WHERE partition = ?1 AND state = 'ALIVE';

-- name: keep_attempts
-- What is kept of some attempts: as many rows of values as there are.
INSERT OR IGNORE INTO accounts (execution_id, dispatch, started_ms, ended_ms, attempt, outcome, account)
VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: accounts
-- What was kept of the attempts of an execution.
SELECT dispatch, attempt, outcome, started_ms, ended_ms, account FROM accounts WHERE execution_id = ?1
ORDER BY dispatch, started_ms;

-- name: drop_accounts
-- What was kept of attempts goes with their executions.
DELETE FROM accounts WHERE execution_id IN (SELECT value FROM json_each(?1));

-- name: incidents
-- What nobody has acted upon yet.
SELECT id, kind, tenant, execution_id, job_id, message, at_ms FROM incidents ORDER BY id LIMIT ?1;

-- name: revocations
-- What of a pool is handed out or running and asked to end, or ended since an instant after it was.
SELECT json_group_array(json_array(id, dispatch, cancel))
FROM executions
WHERE cancel IS NOT NULL AND pool = ?1 AND coalesce(finished_ms, 1 << 62) > ?2 AND fired_ms IS NOT NULL;

-- name: old_executions
-- A small step of executions that retention no longer keeps. The id begins with the time of the occurrence.
SELECT json_group_array(id)
FROM (SELECT id FROM executions
      WHERE id < ?1 AND state = ?2 AND finished_ms < ?3
      ORDER BY id LIMIT ?4);

-- name: old_executions_but
-- As `old_executions`, but for tenants that keep theirs for longer: of so many rows from a mark on. And the last of them.
SELECT json_group_array(id) FILTER (WHERE state = ?2 AND finished_ms < ?3 AND tenant NOT IN (SELECT value FROM json_each(?6))),
       max(id)
FROM (SELECT id, tenant, state, finished_ms FROM executions WHERE id > ?5 AND id < ?1 ORDER BY id LIMIT ?4);

-- name: jobs_of
-- Some jobs of a tenant from a mark on.
SELECT json_group_array(id) FROM (SELECT id FROM jobs WHERE tenant = ?1 AND id > ?2 ORDER BY id LIMIT ?3);

-- name: old_executions_of
-- A small step of executions of some jobs, which ended and are no longer kept.
SELECT json_group_array(id)
FROM (SELECT x.id FROM json_each(?1) e CROSS JOIN executions x ON x.job_id = e.value AND x.id < ?2
      WHERE x.state >= 5 AND x.finished_ms < ?3 LIMIT ?4);

-- name: drop_executions
-- Executions go with their dead letters.
DELETE FROM executions WHERE id IN (SELECT value FROM json_each(?1));

-- name: drop_dead
-- Dead letters go with their executions.
DELETE FROM dead WHERE execution_id IN (SELECT value FROM json_each(?1));

-- name: drop_decisions
-- Decisions that are too old.
DELETE FROM decisions WHERE (job_id, from_ms, to_ms) IN
    (SELECT job_id, from_ms, to_ms FROM decisions WHERE decided_ms < ?1 LIMIT ?2);

-- name: drop_audit
-- Audit entries that are too old. They are numbered in order of time, so only the first ones need be looked at.
DELETE FROM audit WHERE id IN
    (SELECT id FROM (SELECT id, at_ms FROM audit ORDER BY id LIMIT ?2) WHERE at_ms < ?1);

-- name: drop_receipts
-- Answers kept under Idempotency-Keys that are too old.
DELETE FROM receipts WHERE (tenant, key) IN (SELECT tenant, key FROM receipts WHERE at_ms < ?1 LIMIT ?2);

-- name: drop_usage
-- What was used long ago.
DELETE FROM usage WHERE (tenant, day) IN (SELECT tenant, day FROM usage WHERE day < ?1 LIMIT ?2);

-- name: jobs_page
-- Some jobs from a mark on, when each changed last, and whether it ended long ago and has no execution left.
SELECT json_group_array(json_array(j.tenant, j.id, j.updated_ms,
           j.updated_ms < ?3 AND j.state <> 1
           AND (j.state = 2 OR NOT EXISTS (SELECT 1 FROM timeline t WHERE t.key = j.id AND t.due_ms IS NOT NULL))
           AND NOT EXISTS (SELECT 1 FROM executions x WHERE x.job_id = j.id)))
FROM (SELECT tenant, id, updated_ms, state FROM jobs WHERE (tenant, id) > (?1, ?2) ORDER BY tenant, id LIMIT ?4) j;

-- name: drop_jobs
-- Jobs that nothing refers to any more.
DELETE FROM jobs WHERE (tenant, id) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?1));

-- name: drop_revisions
-- What dropped jobs once said.
DELETE FROM revisions WHERE job_id IN (SELECT value ->> 1 FROM json_each(?1));

-- name: drop_unused_revisions
-- What replaced jobs once said is needed as long as something that was fired with it is open.
DELETE FROM revisions WHERE (job_id, revision) IN
    (SELECT r.job_id, r.revision FROM revisions r
     WHERE NOT EXISTS (SELECT 1 FROM executions x INDEXED BY executions_open
                       WHERE x.job_id = r.job_id AND x.state < 2 AND x.revision = r.revision)
     LIMIT ?1);

-- name: drop_fires
-- The timeless fire rows of dropped jobs.
DELETE FROM timeline WHERE key IN (SELECT value ->> 1 FROM json_each(?1));

-- name: drop_workers
-- Workers that left long ago.
DELETE FROM workers WHERE state <> 'ALIVE' AND seen_ms < ?1;
