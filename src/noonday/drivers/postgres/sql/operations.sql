-- name: lock_tenant
-- Let one transaction at a time add operations of a tenant.
SELECT pg_advisory_xact_lock(hashtextextended('operations of ' || $1::text, 0));

-- name: count_running
-- Return how many operations of a tenant run.
SELECT count(*) FROM operations WHERE tenant = $1 AND state = 'RUNNING';

-- name: add_operation
-- Save a new operation.
INSERT INTO operations (tenant, id, version, state, next_ms, ended_ms, body)
VALUES ($1, $2::text::uuid, $3, $4, $5, $6, $7);

-- name: find_operation
-- Return one operation of a tenant.
SELECT body FROM operations WHERE tenant = $1 AND id = $2::text::uuid;

-- name: operations
-- Return a page of operations of a tenant, newest first.
SELECT coalesce(json_agg(body::json), '[]')::text
FROM (SELECT body FROM operations WHERE tenant = $1 AND id < $2::text::uuid ORDER BY id DESC LIMIT $3) page;

-- name: due_operations
-- Return the running operations that are due, the longest due first.
SELECT coalesce(json_agg(body::json), '[]')::text
FROM (SELECT body FROM operations WHERE state = 'RUNNING' AND next_ms <= $1 ORDER BY next_ms LIMIT $2) due;

-- name: next_due
-- Return when the next running operation is due.
SELECT min(next_ms) FROM operations WHERE state = 'RUNNING';

-- name: set_operation
-- Save an operation under the next version, unless another process was faster.
UPDATE operations SET version = $3::integer + 1, state = $4, next_ms = $5, ended_ms = $6, body = $7
WHERE tenant = $1 AND id = $2::text::uuid AND version = $3::integer RETURNING version;

-- name: drop_operations
-- Delete operations that ended long ago.
DELETE FROM operations
WHERE (tenant, id) IN (SELECT tenant, id FROM operations WHERE ended_ms IS NOT NULL AND ended_ms < $1 ORDER BY ended_ms LIMIT $2)
RETURNING id;
