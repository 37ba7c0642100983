-- name: lock_tenant
-- Let one transaction at a time add operations of a tenant.
-- Differs: there is one writer.
SELECT ?1;

-- name: count_running
-- Return how many operations of a tenant run.
SELECT count(*) FROM operations WHERE tenant = ?1 AND state = 'RUNNING';

-- name: add_operation
-- Save a new operation.
INSERT INTO operations (tenant, id, version, state, next_ms, ended_ms, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7);

-- name: find_operation
-- Return one operation of a tenant.
SELECT body FROM operations WHERE tenant = ?1 AND id = ?2;

-- name: operations
-- Return a page of operations of a tenant, newest first.
SELECT json_group_array(json(body))
FROM (SELECT body FROM operations WHERE tenant = ?1 AND id < ?2 ORDER BY id DESC LIMIT ?3);

-- name: due_operations
-- Return the running operations that are due, the longest due first.
SELECT json_group_array(json(body))
FROM (SELECT body FROM operations WHERE state = 'RUNNING' AND next_ms <= ?1 ORDER BY next_ms LIMIT ?2);

-- name: next_due
-- Return when the next running operation is due.
SELECT min(next_ms) FROM operations WHERE state = 'RUNNING';

-- name: set_operation
-- Save an operation under the next version, unless another process was faster.
UPDATE operations SET version = ?3 + 1, state = ?4, next_ms = ?5, ended_ms = ?6, body = ?7
WHERE tenant = ?1 AND id = ?2 AND version = ?3 RETURNING version;

-- name: drop_operations
-- Delete operations that ended long ago.
DELETE FROM operations
WHERE (tenant, id) IN (SELECT tenant, id FROM operations WHERE ended_ms IS NOT NULL AND ended_ms < ?1 ORDER BY ended_ms LIMIT ?2)
RETURNING id;
