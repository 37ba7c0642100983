-- name: add_jobs
-- Insert new jobs and their fire rows.
WITH fires AS (
    INSERT INTO timeline (due_ms, key, kind, number, nominal_ms, partition, tenant, pool, lane, early, recurring, runs_left,
                          ordering_key)
    SELECT * FROM unnest(:fire_due_ms::bigint[], :fire_key::uuid[], :fire_kind::smallint[], :fire_number::integer[],
                         :fire_nominal_ms::bigint[], :fire_partition::smallint[], :fire_tenant::text[], :fire_pool::text[],
                         :fire_lane::smallint[], :fire_early::smallint[], :fire_recurring::smallint[],
                         :fire_runs_left::integer[], :fire_ordering_key::text[])
)
INSERT INTO jobs (tenant, id, revision, state, name, type, pool, handler, lane, unique_key, timeout_sec, heartbeat_sec,
                  deadline_sec, watch, anchor_ms, created_ms, updated_ms, trace, endpoint, halted, spec, payload, skips,
                  moves, paused_until_ms)
SELECT * FROM unnest(:tenant::text[], :id::uuid[], :revision::integer[], :state::smallint[], :name::text[], :type::text[],
                     :pool::text[], :handler::text[], :lane::smallint[], :unique_key::text[], :timeout_sec::float8[],
                     :heartbeat_sec::float8[], :deadline_sec::float8[], :watch::smallint[], :anchor_ms::bigint[],
                     :created_ms::bigint[], :updated_ms::bigint[], :trace::text[], :endpoint::text[], :halted::text[],
                     :spec::text[], :payload::bytea[], :skips::text[], :moves::text[], :paused_until_ms::bigint[]);

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
