-- name: set_job
-- Update the row of a job. A NULL spec keeps the stored one.
UPDATE jobs
SET revision = :revision, state = :state, name = :name, type = :type, pool = :pool, handler = :handler, lane = :lane,
    unique_key = :unique_key, timeout_sec = :timeout_sec, heartbeat_sec = :heartbeat_sec, deadline_sec = :deadline_sec,
    watch = :watch, anchor_ms = :anchor_ms, created_ms = :created_ms, updated_ms = :updated_ms, trace = :trace,
    endpoint = :endpoint, halted = :halted, spec = coalesce(:spec, spec), payload = :payload, skips = :skips,
    moves = :moves, paused_until_ms = :paused_until_ms, touched = touched + 1
WHERE tenant = :tenant AND id = :id::uuid;

-- name: watch_open
-- Add the watch flags of an edited job to its open executions, which keep the flags they were fired with.
UPDATE executions SET watch = watch | $1 WHERE job_id = $2::uuid AND state < 2;

-- name: keep_revision
-- Save the current spec and payload of a job as a revision.
INSERT INTO revisions (job_id, revision, spec, payload)
SELECT id, revision, spec, payload FROM jobs WHERE tenant = $1 AND id = $2::uuid
ON CONFLICT DO NOTHING;

-- name: unique_keys
-- Return which unique keys are taken, and the jobs that have them.
SELECT j.unique_key, j.id::text FROM unnest($2::text[]) e (key) JOIN jobs j ON j.tenant = $1 AND j.unique_key = e.key;

-- name: open_ids
-- Return the ids of all open executions of a job.
SELECT id::text FROM executions WHERE job_id = $1::uuid AND state < 2;

-- name: unbuffered_ids
-- Return the ids of the open executions of a job that does not allow overlap, without buffered ones.
SELECT id::text FROM executions WHERE job_id = $1::uuid AND buffered = 0 AND state < 2 AND watch & 1 = 1;

-- name: snapshot
-- Return a job, its fire row, whether its last execution is an unresolved dead letter, and some of its executions. The
-- executions include one that is open, and the first unbuffered and buffered ones, up to a limit of each.
SELECT jsonb_build_object(
    'job', job_json(j, true),
    'fire', (SELECT fire_json(t) FROM timeline t WHERE t.key = j.id),
    'executions', (
        SELECT coalesce(jsonb_agg(execution_json(x, t.due_ms, false) || jsonb_build_object('suspended_until_ms', t.nominal_ms)
                                  ORDER BY x.id), '[]')
        FROM (SELECT unnest($3::uuid[]) AS id
              UNION
              (SELECT id FROM executions WHERE job_id = j.id AND state < 2 ORDER BY job_id, fired_ms LIMIT 1)
              UNION
              SELECT turns_of(j.id, $4, $4)) e
             JOIN executions x ON x.id = e.id AND x.job_id = j.id LEFT JOIN timeline t ON t.key = x.id),
    'died', job_died(j)
)::text
FROM jobs j WHERE j.tenant = $1 AND j.id = $2::uuid;

-- name: existing
-- Return which of some executions exist.
SELECT x.id::text FROM unnest($1::uuid[]) e (id) JOIN executions x ON x.id = e.id;

-- name: set_payload
-- Store the payload of an execution that does not run with that of its job.
UPDATE executions SET payload = $2::bytea WHERE id = $1::uuid;

-- name: copy_payloads
-- Give retries the payloads of the executions that they retry.
UPDATE executions x SET payload = o.payload
FROM unnest($1::uuid[]) e (id) JOIN executions n ON n.id = e.id JOIN executions o ON o.id = n.retry_of
WHERE x.id = n.id AND o.payload IS NOT NULL;

-- name: resolve_dead
-- Mark dead letters as archived or retried.
UPDATE dead d SET archived = CASE WHEN e.retried_as IS NULL THEN 1 ELSE archived END, retried_as = e.retried_as,
                  resolved_ms = $3
FROM unnest($1::uuid[], $2::uuid[]) e (id, retried_as) WHERE d.execution_id = e.id;

-- name: receipt
-- Return the response that is saved under an Idempotency-Key.
SELECT tenant, key, fingerprint, at_ms, status, body FROM receipts WHERE tenant = $1 AND key = $2;

-- name: next_resume
-- Return when the next paused job is to be resumed.
SELECT min(paused_until_ms) AS at_ms FROM jobs WHERE paused_until_ms > 0;

-- name: due_resumes
-- Return paused jobs whose time to be resumed has come: the earliest ones of each tenant, and of these the first of each tenant
-- first.
-- Differs: a lateral subquery, because a correlated list would be looked up for each job of a tenant.
WITH RECURSIVE tenants (tenant) AS (
    SELECT min(j.tenant) FROM jobs j WHERE j.paused_until_ms IS NOT NULL
    UNION ALL
    SELECT (SELECT min(j.tenant) FROM jobs j WHERE j.paused_until_ms IS NOT NULL AND j.tenant > t.tenant)
    FROM tenants t WHERE t.tenant IS NOT NULL
)
SELECT j.tenant, j.id::text AS id, j.paused_until_ms
FROM tenants t CROSS JOIN LATERAL (
    SELECT d.tenant, d.id, d.paused_until_ms FROM jobs d
    WHERE d.tenant = t.tenant AND d.paused_until_ms IS NOT NULL AND d.paused_until_ms <= $1
    ORDER BY d.paused_until_ms LIMIT $2) j
ORDER BY row_number() OVER (PARTITION BY j.tenant ORDER BY j.paused_until_ms), j.paused_until_ms LIMIT $3;
