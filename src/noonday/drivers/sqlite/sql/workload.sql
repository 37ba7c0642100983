-- name: pools
-- Return pools with their settings.
SELECT json_group_array(json_object('name', name, 'settings', json(settings))) FROM pools WHERE ?1 IS NULL OR name = ?1;

-- name: handlers
-- Return the handlers of all pools.
SELECT json_group_array(json_object('pool', pool, 'name', name, 'info', json(info))) FROM handlers;

-- name: open_by_pool
-- Return the number of open dispatched executions by pool and state, of one tenant or of all.
SELECT pool, state, count(*) AS count FROM executions
WHERE state < 2 AND fired_ms IS NOT NULL AND (?1 IS NULL OR tenant = ?1) GROUP BY pool, state;

-- name: due_by_pool
-- Return the number of due timeline rows by pool, of one tenant or of all, among the first 100,000.
SELECT pool, count(*) AS count
FROM (SELECT pool, tenant FROM timeline WHERE due_ms <= ?1 ORDER BY due_ms, key LIMIT 100000)
WHERE ?2 IS NULL OR tenant = ?2 GROUP BY pool;

-- name: workers
-- Return up to 1,000 workers, live ones first, then newest first.
SELECT json_group_array(json_object('id', id, 'host', host, 'pid', pid, 'concurrency', json(concurrency), 'started_ms', started_ms,
                                    'seen_ms', seen_ms, 'state', state, 'stuck', json(stuck), 'handlers', json(handlers)))
FROM (SELECT * FROM workers ORDER BY state = 'ALIVE' DESC, started_ms DESC LIMIT 1000);

-- name: running
-- Return up to 10,000 running executions.
SELECT json_group_array(json(json))
FROM (SELECT json FROM execution_rows WHERE state = 1 LIMIT 10000);

-- name: usage
-- Return the usage of a tenant by day.
SELECT json_group_array(json_object('day', day, 'runs', runs, 'succeeded', succeeded, 'failed', failed, 'run_ms', run_ms,
                                    'payload_bytes', payload_bytes))
FROM (SELECT * FROM usage WHERE tenant = ?1 AND day BETWEEN ?2 AND ?3 ORDER BY day);

-- name: due_before
-- Return how many rows of a pool are due before a mark, of how many tenants, and how many rows were scanned.
SELECT count(*) FILTER (WHERE mine) AS entries, count(DISTINCT CASE WHEN mine THEN tenant END) AS tenants, count(*) AS examined
FROM (SELECT (?4 IS NULL OR pool = ?4) AS mine, tenant FROM timeline INDEXED BY timeline_due
      WHERE due_ms IS NOT NULL AND due_ms <= ?1 AND (due_ms, key) < (?1, ?2)
      ORDER BY due_ms, key LIMIT ?3);

-- name: due_before_of
-- Return the counts of `due_before` for one tenant.
SELECT count(*) FILTER (WHERE mine) AS entries, count(DISTINCT CASE WHEN mine THEN tenant END) AS tenants, count(*) AS examined
FROM (SELECT tenant = ?4 AND (?5 IS NULL OR pool = ?5) AS mine, tenant FROM timeline INDEXED BY timeline_due
      WHERE due_ms IS NOT NULL AND due_ms <= ?1 AND (due_ms, key) < (?1, ?2)
      ORDER BY due_ms, key LIMIT ?3);

-- name: due_before_with_key
-- Return the counts of `due_before` for rows of a tenant that share a concurrency key.
SELECT count(*) FILTER (WHERE mine) AS entries, count(DISTINCT CASE WHEN mine THEN tenant END) AS tenants, count(*) AS examined
FROM (SELECT CASE WHEN t.tenant = ?4 AND t.early = 0
                  THEN coalesce((SELECT j.spec ->> '$.concurrency.key' = ?5 FROM jobs j
                                 WHERE j.tenant = ?4
                                       AND j.id = coalesce((SELECT x.job_id FROM executions x WHERE t.kind = 1 AND x.id = t.key), t.key)),
                                0)
                  ELSE 0 END AS mine, t.tenant
      FROM (SELECT * FROM timeline INDEXED BY timeline_due
            WHERE due_ms IS NOT NULL AND due_ms <= ?1 AND (due_ms, key) < (?1, ?2)
            ORDER BY due_ms, key LIMIT ?3) t);

-- name: counts
-- Return totals of all tenants. Due rows are counted up to 100,000.
SELECT json_object(
    'running', (SELECT count(*) FROM executions WHERE state = 1),
    'queued', (SELECT count(*) FROM executions WHERE state < 2 AND state = 0 AND fired_ms IS NOT NULL),
    'due', first.due,
    'due_looked_at', first.due,
    'oldest_due_ms', (SELECT coalesce(min(due_ms), 0) FROM timeline WHERE due_ms <= ?1),
    'dead', (SELECT count(*) FROM dead WHERE archived = 0 AND retried_as IS NULL),
    'workers', (SELECT count(*) FROM workers WHERE state = 'ALIVE'))
FROM (SELECT count(*) AS due FROM (SELECT 1 FROM timeline WHERE due_ms <= ?1 LIMIT 100000)) first;

-- name: counts_of
-- Return totals of a tenant, and of the workers, which all tenants share. Due rows are counted among the first 100,000 of all
-- tenants.
SELECT json_object(
    'running', (SELECT count(*) FROM executions WHERE state = 1 AND tenant = ?2),
    'queued', (SELECT count(*) FROM executions WHERE state < 2 AND state = 0 AND fired_ms IS NOT NULL AND tenant = ?2),
    'due', count(*) FILTER (WHERE tenant = ?2),
    'due_looked_at', count(*),
    'oldest_due_ms', coalesce(min(due_ms) FILTER (WHERE tenant = ?2), 0),
    'dead', (SELECT count(*) FROM dead WHERE tenant = ?2 AND archived = 0 AND retried_as IS NULL),
    'workers', (SELECT count(*) FROM workers WHERE state = 'ALIVE'))
FROM (SELECT tenant, due_ms FROM timeline WHERE due_ms <= ?1 ORDER BY due_ms, key LIMIT 100000);

-- name: figures
-- Return the figures of the last seconds that recorders wrote.
SELECT recent FROM checkpoints WHERE recent <> '';
