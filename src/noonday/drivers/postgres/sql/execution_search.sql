-- name: search
-- Return a page of executions of a tenant, newest first: the matches among a limited number of scanned executions of all
-- tenants, how many were scanned, and the last id scanned.
WITH looked AS MATERIALIZED (
    SELECT x.id, x.tenant, x.job_id, x.state, x.attempt, x.pool, x.handler, x.worker_id, x.due_ms, x.started_ms,
           x.finished_ms
    FROM executions x WHERE x.id >= $3::uuid AND x.id < $2::uuid ORDER BY x.id DESC LIMIT $4
), matched AS MATERIALIZED (
    SELECT l.id FROM looked l
    WHERE l.tenant = $1::text AND coalesce(l.state = $6::smallint, $6 IS NULL) AND coalesce(l.pool = $7::text, $7 IS NULL)
          AND coalesce(l.handler = $8::text, $8 IS NULL)
          AND CASE WHEN $9::text IS NULL THEN true
                   ELSE EXISTS (SELECT 1 FROM jobs j
                                WHERE j.tenant = $1 AND j.id = l.job_id AND j.spec::jsonb -> 'tags' ? $9 OFFSET 0) END
          AND CASE WHEN $10::text IS NULL THEN true ELSE coalesce(l.worker_id = $10, false) END
          AND CASE WHEN $11::bigint IS NULL THEN true
                   ELSE l.attempt = 1 AND coalesce(l.started_ms, l.finished_ms, $13::bigint) - l.due_ms > $11 END
          AND CASE WHEN $12::bigint IS NULL THEN true
                   ELSE coalesce(coalesce(l.finished_ms, $13) - l.started_ms > $12, false) END
    ORDER BY l.id DESC LIMIT $5
)
SELECT json_build_object(
    'found', (SELECT coalesce(json_agg(json_build_object(
                         'execution', x.summary,
                         'job_name', (SELECT j.name FROM jobs j WHERE j.tenant = $1 AND j.id = x.job_id)) ORDER BY m.id DESC), '[]')
              FROM matched m
                   CROSS JOIN LATERAL (SELECT x.job_id, execution_json(x, (SELECT t.due_ms FROM timeline t WHERE t.key = x.id), false) AS summary
                                       FROM executions x WHERE x.id = m.id OFFSET 0) x),
    'examined', (SELECT count(*) FROM looked), 'last', (SELECT id FROM looked ORDER BY id LIMIT 1))::text;

-- name: search_of_job
-- Return a page of executions of one job, as `search`.
-- Differs: a row comparison names the job, which leaves no index but the one by job.
WITH looked AS MATERIALIZED (
    SELECT x.id, x.job_id, x.state, x.attempt, x.pool, x.handler, x.worker_id, x.due_ms, x.started_ms, x.finished_ms
    FROM executions x
    WHERE (x.job_id, x.id) >= ($14::uuid, $3::uuid) AND (x.job_id, x.id) < ($14, $2::uuid) AND x.tenant = $1::text
    ORDER BY x.job_id DESC, x.id DESC LIMIT $4
), matched AS MATERIALIZED (
    SELECT l.id FROM looked l
    WHERE coalesce(l.state = $6::smallint, $6 IS NULL) AND coalesce(l.pool = $7::text, $7 IS NULL)
          AND coalesce(l.handler = $8::text, $8 IS NULL)
          AND CASE WHEN $9::text IS NULL THEN true
                   ELSE EXISTS (SELECT 1 FROM jobs j
                                WHERE j.tenant = $1 AND j.id = l.job_id AND j.spec::jsonb -> 'tags' ? $9 OFFSET 0) END
          AND CASE WHEN $10::text IS NULL THEN true ELSE coalesce(l.worker_id = $10, false) END
          AND CASE WHEN $11::bigint IS NULL THEN true
                   ELSE l.attempt = 1 AND coalesce(l.started_ms, l.finished_ms, $13::bigint) - l.due_ms > $11 END
          AND CASE WHEN $12::bigint IS NULL THEN true
                   ELSE coalesce(coalesce(l.finished_ms, $13) - l.started_ms > $12, false) END
    ORDER BY l.id DESC LIMIT $5
)
SELECT json_build_object(
    'found', (SELECT coalesce(json_agg(json_build_object(
                         'execution', x.summary,
                         'job_name', (SELECT j.name FROM jobs j WHERE j.tenant = $1 AND j.id = x.job_id)) ORDER BY m.id DESC), '[]')
              FROM matched m
                   CROSS JOIN LATERAL (SELECT x.job_id, execution_json(x, (SELECT t.due_ms FROM timeline t WHERE t.key = x.id), false) AS summary
                                       FROM executions x WHERE x.id = m.id OFFSET 0) x),
    'examined', (SELECT count(*) FROM looked), 'last', (SELECT id FROM looked ORDER BY id LIMIT 1))::text;

-- name: groups
-- Return the largest groups among a limited number of scanned executions of all tenants, and how many were scanned.
-- Differs: OFFSET 0 keeps a lookup for each row. The least of ids is that of their texts.
WITH looked AS MATERIALIZED (
    SELECT x.id, x.tenant, x.job_id, x.state, x.pool, x.handler, x.buffered, x.fired_ms
    FROM executions x WHERE x.id >= $3::uuid AND x.id < $2::uuid ORDER BY x.id DESC LIMIT $4
), matched AS MATERIALIZED (
    SELECT l.id, CASE WHEN $9::text = 'handler' THEN l.handler ELSE l.pool END AS name,
           CASE WHEN $9 <> 'waitingFor' THEN ''
                WHEN l.buffered = 1 THEN 'buffered'
                WHEN l.fired_ms IS NOT NULL THEN 'dispatched'
                ELSE (SELECT CASE WHEN t.due_ms <= $10::bigint THEN 'due' ELSE 'later' END FROM timeline t WHERE t.key = l.id OFFSET 0)
                     || coalesce((SELECT j.spec::jsonb #>> '{concurrency,key}' FROM jobs j
                                  WHERE j.tenant = $1 AND j.id = l.job_id OFFSET 0), '')
           END AS way
    FROM looked l
    WHERE l.tenant = $1::text AND coalesce(l.state = $6::smallint, $6 IS NULL) AND coalesce(l.pool = $7::text, $7 IS NULL)
          AND coalesce(l.handler = $8::text, $8 IS NULL)
)
SELECT json_build_object(
    'groups', (SELECT coalesce(json_agg(json_build_object('name', g.name, 'oldest', g.oldest, 'count', g.count) ORDER BY g.count DESC, g.oldest), '[]')
               FROM (SELECT name, way, min(id::text COLLATE "C") AS oldest, count(*) AS count FROM matched
                     GROUP BY name, way ORDER BY count(*) DESC, min(id::text COLLATE "C") LIMIT $5) g),
    'examined', (SELECT count(*) FROM looked))::text;

-- name: open_among
-- Return which of some executions have not ended.
SELECT coalesce(json_agg(x.id), '[]')::text FROM unnest($1::uuid[]) e (id) JOIN executions x ON x.id = e.id WHERE x.state < 2;
