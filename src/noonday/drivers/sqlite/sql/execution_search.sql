-- name: search
-- Return a page of executions of a tenant, newest first: the matches among a limited number of scanned executions of all
-- tenants, how many were scanned, and the last id scanned.
WITH looked AS MATERIALIZED (
    SELECT x.id, x.tenant, x.job_id, x.state, x.attempt, x.pool, x.handler, x.worker_id, x.due_ms, x.started_ms,
           x.finished_ms
    FROM executions x INDEXED BY executions_id
    WHERE x.id < ?2 AND x.id >= ?3
    ORDER BY x.id DESC LIMIT ?4
), matched AS MATERIALIZED (
    SELECT l.id, l.job_id FROM looked l
    WHERE l.tenant = ?1 AND (?6 IS NULL OR l.state = ?6) AND (?7 IS NULL OR l.pool = ?7) AND (?8 IS NULL OR l.handler = ?8)
          AND (?9 IS NULL OR EXISTS (SELECT 1 FROM jobs j, json_each(j.spec, '$.tags') tag
                                     WHERE j.tenant = ?1 AND j.id = l.job_id AND tag.value = ?9))
          AND (?10 IS NULL OR l.worker_id = ?10)
          AND (?11 IS NULL OR l.attempt = 1 AND coalesce(l.started_ms, l.finished_ms, ?13) - l.due_ms > ?11)
          AND (?12 IS NULL OR coalesce(l.finished_ms, ?13) - l.started_ms > ?12)
    ORDER BY l.id DESC LIMIT ?5
)
SELECT json_object(
    'found', (SELECT json_group_array(json_object(
                         'execution', json_set(x.json, '$.waits_until_ms', t.due_ms),
                         'job_name', (SELECT j.name FROM jobs j WHERE j.tenant = ?1 AND j.id = x.job_id)))
              FROM (SELECT * FROM matched ORDER BY id DESC) m
                   CROSS JOIN execution_rows x ON x.job_id = m.job_id AND x.id = m.id
                   LEFT JOIN timeline t ON t.key = x.id),
    'examined', (SELECT count(*) FROM looked), 'last', (SELECT min(id) FROM looked));

-- name: search_of_job
-- Return a page of executions of one job, as `search`.
WITH looked AS MATERIALIZED (
    SELECT x.id, x.job_id, x.state, x.attempt, x.pool, x.handler, x.worker_id, x.due_ms, x.started_ms, x.finished_ms
    FROM executions x
    WHERE x.job_id = ?14 AND x.tenant = ?1 AND x.id < ?2 AND x.id >= ?3
    ORDER BY x.id DESC LIMIT ?4
), matched AS MATERIALIZED (
    SELECT l.id, l.job_id FROM looked l
    WHERE (?6 IS NULL OR l.state = ?6) AND (?7 IS NULL OR l.pool = ?7) AND (?8 IS NULL OR l.handler = ?8)
          AND (?9 IS NULL OR EXISTS (SELECT 1 FROM jobs j, json_each(j.spec, '$.tags') tag
                                     WHERE j.tenant = ?1 AND j.id = l.job_id AND tag.value = ?9))
          AND (?10 IS NULL OR l.worker_id = ?10)
          AND (?11 IS NULL OR l.attempt = 1 AND coalesce(l.started_ms, l.finished_ms, ?13) - l.due_ms > ?11)
          AND (?12 IS NULL OR coalesce(l.finished_ms, ?13) - l.started_ms > ?12)
    ORDER BY l.id DESC LIMIT ?5
)
SELECT json_object(
    'found', (SELECT json_group_array(json_object(
                         'execution', json_set(x.json, '$.waits_until_ms', t.due_ms),
                         'job_name', (SELECT j.name FROM jobs j WHERE j.tenant = ?1 AND j.id = x.job_id)))
              FROM (SELECT * FROM matched ORDER BY id DESC) m
                   CROSS JOIN execution_rows x ON x.job_id = m.job_id AND x.id = m.id
                   LEFT JOIN timeline t ON t.key = x.id),
    'examined', (SELECT count(*) FROM looked), 'last', (SELECT min(id) FROM looked));

-- name: groups
-- Return the largest groups among a limited number of scanned executions of all tenants, and how many were scanned.
WITH looked AS MATERIALIZED (
    SELECT x.id, x.tenant, x.job_id, x.state, x.pool, x.handler, x.buffered, x.fired_ms
    FROM executions x INDEXED BY executions_id
    WHERE x.id < ?2 AND x.id >= ?3
    ORDER BY x.id DESC LIMIT ?4
), matched AS MATERIALIZED (
    SELECT l.id, iif(?9 = 'handler', l.handler, l.pool) AS name,
           CASE WHEN ?9 <> 'waitingFor' THEN ''
                WHEN l.buffered = 1 THEN 'buffered'
                WHEN l.fired_ms IS NOT NULL THEN 'dispatched'
                ELSE (SELECT iif(t.due_ms <= ?10, 'due', 'later') FROM timeline t WHERE t.key = l.id)
                     || coalesce((SELECT j.spec ->> '$.concurrency.key' FROM jobs j WHERE j.tenant = ?1 AND j.id = l.job_id), '')
           END AS way
    FROM looked l
    WHERE l.tenant = ?1 AND (?6 IS NULL OR l.state = ?6) AND (?7 IS NULL OR l.pool = ?7) AND (?8 IS NULL OR l.handler = ?8)
)
SELECT json_object(
    'groups', (SELECT json_group_array(json_object('name', g.name, 'oldest', g.oldest, 'count', g.count))
               FROM (SELECT name, way, min(id) AS oldest, count(*) AS count FROM matched
                     GROUP BY name, way ORDER BY count(*) DESC, min(id) LIMIT ?5) g),
    'examined', (SELECT count(*) FROM looked));

-- name: open_among
-- Return which of some executions have not ended.
SELECT json_group_array(x.id) FROM json_each(?1) e CROSS JOIN executions x ON x.id = e.value WHERE x.state < 2;
