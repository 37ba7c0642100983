-- name: set_job
-- Update the row of a job. A NULL spec keeps the stored one.
UPDATE jobs
SET revision = :revision, state = :state, name = :name, type = :type, pool = :pool, handler = :handler, lane = :lane,
    unique_key = :unique_key, timeout_sec = :timeout_sec, heartbeat_sec = :heartbeat_sec, deadline_sec = :deadline_sec,
    watch = :watch, anchor_ms = :anchor_ms, created_ms = :created_ms, updated_ms = :updated_ms, trace = :trace,
    endpoint = :endpoint, halted = :halted, spec = coalesce(:spec, spec), payload = :payload,
    skips = :skips, moves = :moves, paused_until_ms = :paused_until_ms
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

-- name: open_ids
-- Return the ids of all open executions of a job.
SELECT id FROM executions INDEXED BY executions_open WHERE job_id = ?1 AND state < 2;

-- name: unbuffered_ids
-- Return the ids of the open executions of a job that does not allow overlap, without buffered ones.
SELECT id FROM executions INDEXED BY executions_turns
WHERE job_id = ?1 AND buffered = 0 AND state < 2 AND watch & 1 = 1;

-- name: snapshot
-- Return a job, its fire row, whether its last execution is an unresolved dead letter, and some of its executions. The
-- executions include one that is open, and the first unbuffered and buffered ones, up to a limit of each.
SELECT json_object(
    'job', json(whole_json),
    'fire', (SELECT json_object('nominal_ms', nominal_ms, 'due_ms', due_ms, 'runs_left', runs_left) FROM timeline WHERE key = ?2),
    'executions', (
        SELECT json_group_array(json_set(x.json, '$.waits_until_ms', t.due_ms, '$.suspended_until_ms', t.nominal_ms))
        FROM (SELECT value AS id FROM json_each(?3)
              UNION
              SELECT * FROM (SELECT id FROM executions INDEXED BY executions_open WHERE job_id = ?2 AND state < 2 LIMIT 1)
              UNION
              SELECT * FROM (SELECT id FROM executions INDEXED BY executions_turns
                             WHERE job_id = ?2 AND buffered = 0 AND state < 2 AND watch & 1 = 1 ORDER BY id LIMIT ?4)
              UNION
              SELECT * FROM (SELECT id FROM executions INDEXED BY executions_turns
                             WHERE job_id = ?2 AND buffered = 1 AND state < 2 AND watch & 1 = 1 ORDER BY id LIMIT ?4)
              ORDER BY id) e
             CROSS JOIN execution_rows x ON x.job_id = ?2 AND x.id = e.id LEFT JOIN timeline t ON t.key = x.id),
    'died', json(iif(died, 'true', 'false')))
FROM job_rows WHERE tenant = ?1 AND id = ?2;

-- name: existing
-- Return which of some executions exist.
SELECT x.id FROM json_each(?1) e CROSS JOIN executions x ON x.id = e.value;

-- name: set_payload
-- Store the payload of an execution that does not run with that of its job.
UPDATE executions SET payload = ?2 WHERE id = ?1;

-- name: copy_payloads
-- Give retries the payloads of the executions that they retry.
UPDATE executions SET payload = o.payload
FROM json_each(?1) e CROSS JOIN executions n ON n.id = e.value CROSS JOIN executions o ON o.id = n.retry_of
WHERE executions.id = n.id AND o.payload IS NOT NULL;

-- name: resolve_dead
-- Mark dead letters as archived or retried.
UPDATE dead SET archived = iif(e.retried_as IS NULL, 1, archived), retried_as = e.retried_as, resolved_ms = ?3
FROM (SELECT x.value AS id, y.value AS retried_as FROM json_each(?1) x JOIN json_each(?2) y ON y.key = x.key) e
WHERE dead.execution_id = e.id;

-- name: receipt
-- Return the response that is saved under an Idempotency-Key.
SELECT tenant, key, fingerprint, at_ms, status, body FROM receipts WHERE tenant = ?1 AND key = ?2;

-- name: next_resume
-- Return when the next paused job is to be resumed.
SELECT min(paused_until_ms) AS at_ms FROM jobs INDEXED BY jobs_to_resume WHERE paused_until_ms > 0;

-- name: due_resumes
-- Return paused jobs whose time to be resumed has come: the earliest ones of each tenant, and of these the first of each tenant
-- first.
WITH RECURSIVE tenants (tenant) AS (
    SELECT min(j.tenant) FROM jobs j INDEXED BY jobs_to_resume_of_tenants WHERE j.paused_until_ms IS NOT NULL
    UNION ALL
    SELECT (SELECT min(j.tenant) FROM jobs j INDEXED BY jobs_to_resume_of_tenants WHERE j.paused_until_ms IS NOT NULL AND j.tenant > t.tenant)
    FROM tenants t WHERE t.tenant IS NOT NULL
)
SELECT j.tenant, j.id AS id, j.paused_until_ms
FROM tenants t JOIN jobs j ON j.tenant = t.tenant AND j.id IN (
    SELECT d.id FROM jobs d INDEXED BY jobs_to_resume_of_tenants
    WHERE d.tenant = t.tenant AND d.paused_until_ms IS NOT NULL AND d.paused_until_ms <= ?1
    ORDER BY d.paused_until_ms LIMIT ?2)
ORDER BY row_number() OVER (PARTITION BY j.tenant ORDER BY j.paused_until_ms), j.paused_until_ms LIMIT ?3;
