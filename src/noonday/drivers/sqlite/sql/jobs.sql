-- name: add_jobs
-- Insert new jobs, one row of values per job.
INSERT INTO jobs (tenant, id, revision, state, name, type, pool, handler, lane, unique_key, timeout_sec, heartbeat_sec,
                  deadline_sec, watch, anchor_ms, created_ms, updated_ms, trace, endpoint, halted, spec, payload)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: add_fires
-- Insert the fire rows of new jobs, one row of values per job.
INSERT INTO timeline (due_ms, key, kind, number, nominal_ms, partition, tenant, pool, lane, early, recurring, runs_left,
                      ordering_key)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: set_job
-- Update the row of a job. A NULL spec keeps the stored one.
UPDATE jobs
SET revision = :revision, state = :state, name = :name, type = :type, pool = :pool, handler = :handler, lane = :lane,
    unique_key = :unique_key, timeout_sec = :timeout_sec, heartbeat_sec = :heartbeat_sec, deadline_sec = :deadline_sec, watch = :watch,
    anchor_ms = :anchor_ms, created_ms = :created_ms, updated_ms = :updated_ms, trace = :trace, endpoint = :endpoint, halted = :halted,
    spec = coalesce(:spec, spec), payload = :payload
WHERE tenant = :tenant AND id = :id;

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
SELECT j.unique_key, j.id
FROM json_each(?2) e CROSS JOIN jobs j ON j.tenant = ?1 AND j.unique_key = e.value;

-- name: job
-- Return a job.
SELECT whole_json FROM job_rows WHERE tenant = ?1 AND id = ?2;

-- name: fire
-- Return the fire row of a job.
SELECT nominal_ms, due_ms, runs_left FROM timeline WHERE key = ?1;

-- name: open_ids
-- Return the ids of all open executions of a job.
SELECT id FROM executions INDEXED BY executions_open WHERE job_id = ?1 AND state < 2;

-- name: unbuffered_ids
-- Return the ids of the open executions of a job that does not allow overlap, without buffered ones.
SELECT id FROM executions INDEXED BY executions_turns
WHERE job_id = ?1 AND buffered = 0 AND state < 2 AND watch & 1 = 1;

-- name: executions
-- Return some executions of a job, one that is open, and the first unbuffered and buffered ones, up to a limit of each.
SELECT json_group_array(json_set(x.json, '$.waits_until_ms', t.due_ms, '$.suspended_until_ms', t.nominal_ms))
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
     CROSS JOIN execution_rows x ON x.job_id = ?1 AND x.id = e.id LEFT JOIN timeline t ON t.key = x.id;

-- name: existing
-- Return which of some executions exist.
SELECT x.id FROM json_each(?1) e CROSS JOIN executions x ON x.id = e.value;

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
