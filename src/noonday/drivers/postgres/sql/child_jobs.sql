-- name: tenants
-- Return tenants with child jobs that wait to be created, after a tenant. Each step of the walk reads one row.
WITH RECURSIVE walk (tenant, count) AS (
    SELECT (SELECT min(c.tenant) FROM child_jobs c WHERE c.tenant > $1), 1
    UNION ALL
    SELECT (SELECT min(c.tenant) FROM child_jobs c WHERE c.tenant > walk.tenant), count + 1
    FROM walk WHERE walk.tenant IS NOT NULL AND count < $2)
SELECT tenant FROM walk WHERE tenant IS NOT NULL;

-- name: waiting
-- Return the oldest child jobs of a tenant that wait to be created.
SELECT tenant, execution_id::text, dispatch, job_id::text, children FROM child_jobs
WHERE tenant = $1 ORDER BY tenant, child_jobs.execution_id, dispatch LIMIT $2;

-- name: take
-- Delete the waiting row of child jobs. Returns no row if another process has created them.
DELETE FROM child_jobs WHERE tenant = $1 AND execution_id = $2::uuid AND dispatch = $3 RETURNING dispatch;

-- name: existing
-- Return which of some jobs of a tenant exist.
SELECT j.id::text FROM unnest($2::uuid[]) e (id) JOIN jobs j ON j.tenant = $1 AND j.id = e.id;
