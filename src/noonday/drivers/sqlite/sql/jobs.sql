-- name: add_jobs
-- New jobs: as many rows of values as there are jobs.
INSERT INTO jobs (tenant, id, revision, state, name, type, pool, handler, lane, unique_key, timeout_sec, heartbeat_sec,
                  deadline_sec, watch, anchor_ms, created_ms, updated_ms, trace, endpoint, halted, spec, payload)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: add_fires
-- What new jobs wait for: as many rows of values as there are jobs.
INSERT INTO timeline (due_ms, key, kind, number, nominal_ms, partition, tenant, pool, lane, staged, planned, runs_left,
                      line)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: set_job
-- A job's new row.
UPDATE jobs
SET revision = ?3, state = ?4, name = ?5, type = ?6, pool = ?7, handler = ?8, lane = ?9, unique_key = ?10, timeout_sec = ?11,
    heartbeat_sec = ?12, deadline_sec = ?13, watch = ?14, anchor_ms = ?15, created_ms = ?16, updated_ms = ?17, trace = ?18,
    endpoint = ?19, halted = ?20, spec = coalesce(?21, spec), payload = ?22
WHERE tenant = ?1 AND id = ?2;

-- name: watch_open
-- Open executions are watched for what the job says now as well as for what it said when they were fired.
UPDATE executions INDEXED BY executions_open SET watch = watch | ?1 WHERE job_id = ?2 AND state < 2;

-- name: keep_revision
-- What a job said until now.
INSERT INTO revisions (job_id, revision, spec, payload)
SELECT id, revision, spec, payload FROM jobs WHERE tenant = ?1 AND id = ?2
ON CONFLICT DO NOTHING;

-- name: unique_keys
-- Which unique keys are taken, and by which jobs.
SELECT json_group_array(json_array(j.unique_key, j.id))
FROM json_each(?2) e CROSS JOIN jobs j ON j.tenant = ?1 AND j.unique_key = e.value;

-- name: job
-- A job as it is.
SELECT json_array(id, tenant, revision, state, json(spec), anchor_ms, payload, created_ms, updated_ms, trace, halted)
FROM jobs WHERE tenant = ?1 AND id = ?2;

-- name: fire
-- What a job waits for.
SELECT json_array(nominal_ms, due_ms, runs_left) FROM timeline WHERE key = ?1;

-- name: open_ids
-- All open executions of a job.
SELECT json_group_array(json_array(id)) FROM executions INDEXED BY executions_open WHERE job_id = ?1 AND state < 2;

-- name: unbuffered_ids
-- All open executions of a job that does not allow overlap, but for those that are buffered.
SELECT json_group_array(json_array(id)) FROM executions INDEXED BY executions_turns
WHERE job_id = ?1 AND buffered = 0 AND state < 2 AND watch & 1 = 1;

-- name: executions
-- Some executions of a job, and the first few open ones, so many of each kind.
SELECT json_group_array(json_array(x.id, x.job_id, x.tenant, x.nominal_ms, x.due_ms, x.state, x.attempt, x.dispatch, x.revision,
                                   x.cause, x.pool, x.handler, x.lane, x.created_ms, x.fired_ms, x.buffered, x.watch, json(iif(x.state < 2, coalesce(x.slots, '[]'), '[]')),
                                   t.due_ms, x.worker_id, x.started_ms, x.finished_ms, x.cancel, x.failure, NULL, NULL,
                                   x.retry_of, '', t.nominal_ms))
FROM (SELECT value AS id FROM json_each(?2)
      UNION
      SELECT * FROM (SELECT id FROM executions INDEXED BY executions_open WHERE job_id = ?1 AND state < 2 LIMIT 1)
      UNION
      SELECT * FROM (SELECT id FROM executions INDEXED BY executions_turns
                     WHERE job_id = ?1 AND buffered = 0 AND state < 2 AND watch & 1 = 1 ORDER BY id LIMIT ?3)
      UNION
      SELECT * FROM (SELECT id FROM executions INDEXED BY executions_turns
                     WHERE job_id = ?1 AND buffered = 1 AND state < 2 AND watch & 1 = 1 ORDER BY id LIMIT ?3)
      ORDER BY id) e
     CROSS JOIN executions x ON x.job_id = ?1 AND x.id = e.id LEFT JOIN timeline t ON t.key = x.id;

-- name: existing
-- Which of some executions exist.
SELECT json_group_array(json_array(x.id)) FROM json_each(?1) e CROSS JOIN executions x ON x.id = e.value;

-- name: resolve_dead
-- Dead letters that somebody dealt with.
UPDATE dead SET archived = iif(e.value ->> 1 IS NULL, 1, archived), retried_as = e.value ->> 1, resolved_ms = ?2
FROM json_each(?1) e WHERE dead.execution_id = e.value ->> 0;

-- name: add_audit
-- Who did what.
INSERT INTO audit (tenant, at_ms, subject, action, target, detail) VALUES (?1, ?2, ?3, ?4, ?5, ?6);

-- name: add_receipt
-- The answer kept under an Idempotency-Key.
INSERT INTO receipts (tenant, key, fingerprint, at_ms, status, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6);

-- name: receipt
-- The answer given before.
SELECT tenant, key, fingerprint, at_ms, status, body FROM receipts WHERE tenant = ?1 AND key = ?2;
