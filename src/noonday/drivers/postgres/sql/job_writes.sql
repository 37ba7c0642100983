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

-- name: lock_jobs
-- Lock several jobs in id order, before one of them is edited.
SELECT count(*) FROM (
    SELECT 1 FROM unnest($2::uuid[]) e (id) JOIN jobs j ON j.tenant = $1 AND j.id = e.id ORDER BY j.id FOR UPDATE OF j) locked;

-- name: lock_rows
-- Lock the fire row of a job, then some executions and their dispatch rows, so that no other transaction fires or settles them.
SELECT lock_rows($1::uuid[]);

-- name: write_rows
-- Lock the slots of a write set and write it. Returns how many executions are new.
SELECT write_rows($1::jsonb, $2) FROM lock_slots($1::jsonb -> 'slots');
