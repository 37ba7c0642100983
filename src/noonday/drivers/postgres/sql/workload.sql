-- name: pools
-- Return pools with their settings.
SELECT coalesce(json_agg(json_build_object('name', name, 'settings', settings::json) ORDER BY name), '[]')::text
FROM pools WHERE $1::text IS NULL OR name = $1;

-- name: handlers
-- Return the handlers of all pools.
SELECT coalesce(json_agg(json_build_object('pool', pool, 'name', name, 'info', info::json) ORDER BY pool, name), '[]')::text
FROM handlers;

-- name: open_by_pool
-- Return the number of open dispatched executions by pool and state, of one tenant or of all.
SELECT pool, state, count(*) AS count FROM executions
WHERE state < 2 AND fired_ms IS NOT NULL AND coalesce(tenant = $1, true) GROUP BY pool, state;

-- name: due_by_pool
-- Return the number of due timeline rows by pool, of one tenant or of all, among the first 100,000.
-- Differs: without the lower bound, the planner expects a third of the table and reads all of it.
SELECT pool, count(*) AS count
FROM (SELECT pool, tenant FROM timeline WHERE due_ms BETWEEN 0 AND $1 ORDER BY due_ms, key LIMIT 100000) first
WHERE coalesce(tenant = $2, true) GROUP BY pool;

-- name: workers
-- Return up to 1,000 workers, live ones first, then newest first.
SELECT coalesce(json_agg(json_build_object('id', id, 'host', host, 'pid', pid, 'concurrency', concurrency::json,
                                           'started_ms', started_ms, 'seen_ms', seen_ms, 'state', state, 'stuck', stuck::json,
                                           'handlers', handlers::json)), '[]')::text
FROM (SELECT * FROM workers ORDER BY state = 'ALIVE' DESC, started_ms DESC LIMIT 1000) newest;

-- name: running
-- Return up to 10,000 running executions.
SELECT coalesce(json_agg(execution), '[]')::text
FROM (SELECT execution_json(x, NULL, false) AS execution FROM executions x WHERE x.state = 1 LIMIT 10000) shown;

-- name: usage
-- Return the usage of a tenant by day.
SELECT coalesce(json_agg(json_build_object('day', day, 'runs', runs, 'succeeded', succeeded, 'failed', failed, 'run_ms', run_ms,
                                           'payload_bytes', payload_bytes) ORDER BY day), '[]')::text
FROM usage WHERE tenant = $1 AND day BETWEEN $2 AND $3;

-- name: due_before
-- Return how many rows of a pool are due before a mark, of how many tenants, and how many rows were scanned.
SELECT count(*) FILTER (WHERE mine) AS entries, count(DISTINCT tenant) FILTER (WHERE mine) AS tenants, count(*) AS examined
FROM (SELECT coalesce(t.pool = $4, $4 IS NULL) AS mine, t.tenant FROM timeline t
      WHERE t.due_ms IS NOT NULL AND (t.due_ms, t.key) < ($1::bigint, $2::uuid)
      ORDER BY t.due_ms, t.key LIMIT $3) looked_at;

-- name: due_before_of
-- Return the counts of `due_before` for one tenant.
-- Differs: there is an index by tenant. A row comparison names the tenant, as it names the job in `executions`.
SELECT count(*) FILTER (WHERE mine) AS entries, count(DISTINCT tenant) FILTER (WHERE mine) AS tenants, count(*) AS examined
FROM (SELECT coalesce(t.pool = $5, $5 IS NULL) AND (t.due_ms, t.key) < ($1::bigint, $2::uuid) AS mine, t.tenant
      FROM timeline t
      WHERE (t.tenant, t.due_ms) >= ($4::text, 0) AND (t.tenant, t.due_ms) <= ($4, $1)
      ORDER BY t.tenant, t.due_ms LIMIT $3) looked_at;

-- name: due_before_with_key
-- Return the counts of `due_before` for rows of a tenant that share a concurrency key.
SELECT count(*) FILTER (WHERE mine) AS entries, count(DISTINCT tenant) FILTER (WHERE mine) AS tenants, count(*) AS examined
FROM (SELECT t.tenant,
             CASE WHEN t.early = 0 AND (t.due_ms, t.key) < ($1::bigint, $2::uuid)
                  THEN (SELECT j.spec::jsonb -> 'concurrency' ->> 'key' = $5 FROM jobs j
                        WHERE j.tenant = $4 AND j.id = CASE WHEN t.kind = 0 THEN t.key
                                                            ELSE (SELECT x.job_id FROM executions x WHERE x.id = t.key) END)
             END AS mine
      FROM (SELECT * FROM timeline t
            WHERE (t.tenant, t.due_ms) >= ($4::text, 0) AND (t.tenant, t.due_ms) <= ($4, $1)
            ORDER BY t.tenant, t.due_ms LIMIT $3) t OFFSET 0) looked_at;

-- name: counts
-- Return totals of all tenants. Due rows are counted up to 100,000.
SELECT json_build_object(
    'running', (SELECT count(*) FROM executions WHERE state = 1),
    'queued', (SELECT count(*) FROM executions WHERE state = 0 AND fired_ms IS NOT NULL),
    'due', first.due,
    'due_looked_at', first.due,
    'oldest_due_ms', (SELECT coalesce(min(due_ms), 0) FROM timeline WHERE due_ms <= $1),
    'dead', (SELECT count(*) FROM dead WHERE archived = 0 AND retried_as IS NULL),
    'workers', (SELECT count(*) FROM workers WHERE state = 'ALIVE'))::text
FROM (SELECT count(*) AS due
      FROM (SELECT 1 FROM timeline WHERE due_ms BETWEEN 0 AND $1 ORDER BY due_ms LIMIT 100000) rows) first;

-- name: counts_of
-- Return totals of a tenant, and of the workers, which all tenants share. Due rows are counted among the first 100,000 of all
-- tenants.
SELECT json_build_object(
    'running', (SELECT count(*) FROM executions WHERE state = 1 AND tenant = $2),
    'queued', (SELECT count(*) FROM executions WHERE state = 0 AND fired_ms IS NOT NULL AND tenant = $2),
    'due', count(*) FILTER (WHERE tenant = $2),
    'due_looked_at', count(*),
    'oldest_due_ms', coalesce(min(due_ms) FILTER (WHERE tenant = $2), 0),
    'dead', (SELECT count(*) FROM dead WHERE tenant = $2 AND archived = 0 AND retried_as IS NULL),
    'workers', (SELECT count(*) FROM workers WHERE state = 'ALIVE'))::text
FROM (SELECT tenant, due_ms FROM timeline WHERE due_ms BETWEEN 0 AND $1 ORDER BY due_ms, key LIMIT 100000) first;

-- name: figures
-- Return the figures of the last seconds that recorders wrote.
SELECT recent FROM checkpoints WHERE recent <> '';
