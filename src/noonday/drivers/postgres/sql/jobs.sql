-- name: add_jobs
-- Insert new jobs and their fire rows.
WITH fires AS (
    INSERT INTO timeline (due_ms, key, kind, number, nominal_ms, partition, tenant, pool, lane, early, recurring, runs_left,
                          ordering_key)
    SELECT * FROM unnest($23::bigint[], $24::uuid[], $25::smallint[], $26::integer[], $27::bigint[], $28::smallint[], $29::text[],
                         $30::text[], $31::smallint[], $32::smallint[], $33::smallint[], $34::integer[], $35::text[])
)
INSERT INTO jobs (tenant, id, revision, state, name, type, pool, handler, lane, unique_key, timeout_sec, heartbeat_sec,
                  deadline_sec, watch, anchor_ms, created_ms, updated_ms, trace, endpoint, halted, spec, payload)
SELECT * FROM unnest($1::text[], $2::uuid[], $3::integer[], $4::smallint[], $5::text[], $6::text[], $7::text[], $8::text[],
                     $9::smallint[], $10::text[], $11::float8[], $12::float8[], $13::float8[], $14::smallint[], $15::bigint[],
                     $16::bigint[], $17::bigint[], $18::text[], $19::text[], $20::text[], $21::text[], $22::bytea[]);

-- name: set_job
-- Update the row of a job. A NULL spec keeps the stored one.
UPDATE jobs
SET revision = $3, state = $4, name = $5, type = $6, pool = $7, handler = $8, lane = $9, unique_key = $10, timeout_sec = $11,
    heartbeat_sec = $12, deadline_sec = $13, watch = $14, anchor_ms = $15, created_ms = $16, updated_ms = $17, trace = $18,
    endpoint = $19, halted = $20, spec = coalesce($21, spec), payload = $22, touched = touched + 1
WHERE tenant = $1 AND id = $2::uuid;

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

-- name: lock_jobs
-- Lock several jobs in id order, before one of them is edited.
SELECT count(*) FROM (
    SELECT 1 FROM unnest($2::uuid[]) e (id) JOIN jobs j ON j.tenant = $1 AND j.id = e.id ORDER BY j.id FOR UPDATE OF j) locked;

-- name: lock_job
-- Lock the row of a job. The transaction that has it decides about the job.
SELECT 1 FROM jobs WHERE tenant = $1 AND id = $2::uuid FOR UPDATE;

-- name: lock_rows
-- Lock the fire row of a job, then some executions and their dispatch rows, so that no other transaction fires or settles them.
SELECT lock_rows($1::uuid[]);

-- name: open_ids
-- Return the ids of all open executions of a job.
SELECT id::text FROM executions WHERE job_id = $1::uuid AND state < 2;

-- name: unbuffered_ids
-- Return the ids of the open executions of a job that does not allow overlap, without buffered ones.
SELECT id::text FROM executions WHERE job_id = $1::uuid AND buffered = 0 AND state < 2 AND watch & 1 = 1;

-- name: snapshot
-- Return a job, its fire row and some of its executions. The executions include one that is open, and the first unbuffered and
-- buffered ones, up to a limit of each.
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
             JOIN executions x ON x.id = e.id AND x.job_id = j.id LEFT JOIN timeline t ON t.key = x.id)
)::text
FROM jobs j WHERE j.tenant = $1 AND j.id = $2::uuid;

-- name: existing
-- Return which of some executions exist.
SELECT x.id::text FROM unnest($1::uuid[]) e (id) JOIN executions x ON x.id = e.id;

-- name: resolve_dead
-- Mark dead letters as archived or retried.
UPDATE dead d SET archived = CASE WHEN e.retried_as IS NULL THEN 1 ELSE archived END, retried_as = e.retried_as,
                  resolved_ms = $3
FROM unnest($1::uuid[], $2::uuid[]) e (id, retried_as) WHERE d.execution_id = e.id;

-- name: write_rows
-- Lock the slots of a write set and write it. Returns how many executions are new.
SELECT write_rows($1::jsonb, $2) FROM lock_slots($1::jsonb -> 'slots');

-- name: add_audit
-- Insert an audit entry.
INSERT INTO audit (tenant, at_ms, subject, action, target, detail) VALUES ($1, $2, $3, $4, $5, $6);

-- name: add_receipt
-- Save the response to a request under its Idempotency-Key.
INSERT INTO receipts (tenant, key, fingerprint, at_ms, status, body) VALUES ($1, $2, $3, $4, $5, $6);

-- name: receipt
-- Return the response that is saved under an Idempotency-Key.
SELECT tenant, key, fingerprint, at_ms, status, body FROM receipts WHERE tenant = $1 AND key = $2;
