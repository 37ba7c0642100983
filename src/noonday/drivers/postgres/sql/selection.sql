-- name: jobs
-- Return a page of jobs that may still fire, newest first: the matches among a limited number of examined jobs, how many were
-- examined, and the last one.
-- Differs: a row comparison names the tenant, so that the jobs are read in order. OFFSET 0 keeps a lookup for each row.
WITH looked AS MATERIALIZED (
    SELECT j.id, j.state, j.type, j.pool, j.handler, j.name, j.unique_key, j.spec
    FROM jobs j
    WHERE (j.tenant, j.id) >= ($1::text, '00000000-0000-0000-0000-000000000000') AND (j.tenant, j.id) < ($1, $2::uuid)
    ORDER BY j.tenant DESC, j.id DESC LIMIT $3
), matched AS MATERIALIZED (
    SELECT l.id, l.name FROM looked l
    WHERE coalesce(l.type = $5::text, true) AND coalesce(l.pool = $6::text, l.pool <> $12::text) AND coalesce(l.handler = $7::text, true)
          AND CASE WHEN $8::text IS NULL THEN true ELSE coalesce(l.name = $8, false) END
          AND CASE WHEN $9::text IS NULL THEN true ELSE coalesce(l.unique_key = $9, false) END
          AND CASE WHEN $10::text IS NULL THEN true ELSE coalesce(l.spec::jsonb -> 'tags' ? $10, false) END
          AND CASE l.state WHEN 1 THEN coalesce($11::text = 'PAUSED', true)
                           WHEN 0 THEN coalesce($11 = 'ACTIVE', true)
                                       AND (EXISTS (SELECT 1 FROM timeline t WHERE t.key = l.id AND t.due_ms IS NOT NULL OFFSET 0)
                                            OR EXISTS (SELECT 1 FROM executions x WHERE x.job_id = l.id AND x.state < 2 OFFSET 0))
                           ELSE false END
    ORDER BY l.id DESC LIMIT $4
)
SELECT json_build_object(
    'found', (SELECT coalesce(json_agg(json_build_object('id', m.id, 'name', m.name) ORDER BY m.id DESC), '[]') FROM matched m),
    'examined', (SELECT count(*) FROM looked), 'last', (SELECT id FROM looked ORDER BY id LIMIT 1))::text;

-- name: dead_letters
-- Return a page of open dead letters, newest first: the matches among a limited number of examined ones, how many were examined,
-- and the last one.
-- Differs: as `jobs`.
WITH looked AS MATERIALIZED (
    SELECT d.execution_id AS id, d.job_id, d.pool, d.handler, d.died_ms
    FROM dead d
    WHERE (d.tenant, d.execution_id) >= ($1::text, '00000000-0000-0000-0000-000000000000')
          AND (d.tenant, d.execution_id) < ($1, $2::uuid) AND d.archived = 0 AND d.retried_as IS NULL
    ORDER BY d.tenant DESC, d.execution_id DESC LIMIT $3
), matched AS MATERIALIZED (
    SELECT l.id, l.job_id, l.died_ms FROM looked l
    WHERE coalesce(l.job_id = $5::uuid, true) AND coalesce(l.pool = $6::text, true) AND coalesce(l.handler = $7::text, true)
          AND coalesce(l.died_ms >= $8::bigint, true) AND coalesce(l.died_ms < $9::bigint, true)
          AND CASE WHEN $10::text IS NULL THEN true
                   ELSE EXISTS (SELECT 1 FROM executions x
                                WHERE x.id = l.id
                                      AND strpos(lower((x.failure::jsonb ->> 'type' || ': ' || (x.failure::jsonb ->> 'message')) COLLATE "C"),
                                                 lower($10 COLLATE "C")) > 0 OFFSET 0) END
    ORDER BY l.id DESC LIMIT $4
)
SELECT json_build_object(
    'found', (SELECT coalesce(json_agg(json_build_object('id', m.id, 'job_id', m.job_id, 'died_ms', m.died_ms,
                                                         'error_type', coalesce(x.failure ->> 'type', ''),
                                                         'message', left(coalesce(x.failure ->> 'message', ''), 500)) ORDER BY m.id DESC), '[]')
              FROM matched m
                   CROSS JOIN LATERAL (SELECT x.failure::jsonb AS failure FROM executions x WHERE x.id = m.id OFFSET 0) x),
    'examined', (SELECT count(*) FROM looked), 'last', (SELECT id FROM looked ORDER BY id LIMIT 1))::text;

-- name: run_ends
-- Return the state and the attempt of some executions.
SELECT coalesce(json_agg(json_build_object('id', x.id, 'state', x.state, 'attempt', x.attempt)), '[]')::text
FROM unnest($2::uuid[]) e (id) JOIN executions x ON x.id = e.id WHERE x.tenant = $1;
