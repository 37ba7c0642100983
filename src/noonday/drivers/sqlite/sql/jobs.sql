-- name: add_jobs
-- Insert new jobs, one row of values per job.
INSERT INTO jobs (tenant, id, revision, state, name, type, pool, handler, lane, unique_key, timeout_sec, heartbeat_sec,
                  deadline_sec, watch, anchor_ms, created_ms, updated_ms, trace, endpoint, halted, spec, payload)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: add_fires
-- Insert the fire rows of new jobs, one row of values per job.
INSERT INTO timeline (due_ms, key, kind, number, nominal_ms, partition, tenant, pool, lane, staged, planned, runs_left,
                      line)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: set_job
-- Update the row of a job. A NULL spec keeps the stored one.
UPDATE jobs
SET revision = ?3, state = ?4, name = ?5, type = ?6, pool = ?7, handler = ?8, lane = ?9, unique_key = ?10, timeout_sec = ?11,
    heartbeat_sec = ?12, deadline_sec = ?13, watch = ?14, anchor_ms = ?15, created_ms = ?16, updated_ms = ?17, trace = ?18,
    endpoint = ?19, halted = ?20, spec = coalesce(?21, spec), payload = ?22
WHERE tenant = ?1 AND id = ?2;

-- name: watch_open
-- Add the watch flags of an edited job to its open executions, which keep the flags they were fired with.
UPDATE executions INDEXED BY executions_open SET watch = watch | ?1 WHERE job_id = ?2 AND state < 2;

-- name: keep_revision
-- Save the current spec and payload of a job as a revision.
INSERT INTO revisions (job_id, revision, spec, payload)
SELECT id, revision, spec, payload FROM jobs WHERE tenant = ?1 AND id = ?2
ON CONFLICT DO NOTHING;

-- name: unique_keys
-- Return which unique keys are taken, and the jobs that have them.
SELECT json_group_array(json_array(j.unique_key, j.id))
FROM json_each(?2) e CROSS JOIN jobs j ON j.tenant = ?1 AND j.unique_key = e.value;

-- name: job
-- Return a job.
SELECT json_array(id, tenant, revision, state, json(spec), anchor_ms, payload, created_ms, updated_ms, trace, halted)
FROM jobs WHERE tenant = ?1 AND id = ?2;

-- name: fire
-- Return the fire row of a job.
SELECT json_array(nominal_ms, due_ms, runs_left) FROM timeline WHERE key = ?1;

-- name: open_ids
-- Return the ids of all open executions of a job.
SELECT json_group_array(json_array(id)) FROM executions INDEXED BY executions_open WHERE job_id = ?1 AND state < 2;

-- name: unbuffered_ids
-- Return the ids of the open executions of a job that does not allow overlap, without buffered ones.
SELECT json_group_array(json_array(id)) FROM executions INDEXED BY executions_turns
WHERE job_id = ?1 AND buffered = 0 AND state < 2 AND watch & 1 = 1;

-- name: executions
-- Return some executions of a job, one that is open, and the first unbuffered and buffered ones, up to a limit of each.
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
-- Return which of some executions exist.
SELECT json_group_array(json_array(x.id)) FROM json_each(?1) e CROSS JOIN executions x ON x.id = e.value;

-- name: resolve_dead
-- Mark dead letters as archived or retried.
UPDATE dead SET archived = iif(e.value ->> 1 IS NULL, 1, archived), retried_as = e.value ->> 1, resolved_ms = ?2
FROM json_each(?1) e WHERE dead.execution_id = e.value ->> 0;

-- name: add_audit
-- Insert an audit entry.
INSERT INTO audit (tenant, at_ms, subject, action, target, detail) VALUES (?1, ?2, ?3, ?4, ?5, ?6);

-- name: add_receipt
-- Save the response to a request under its Idempotency-Key.
INSERT INTO receipts (tenant, key, fingerprint, at_ms, status, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6);

-- name: receipt
-- Return the response that is saved under an Idempotency-Key.
SELECT tenant, key, fingerprint, at_ms, status, body FROM receipts WHERE tenant = ?1 AND key = ?2;
