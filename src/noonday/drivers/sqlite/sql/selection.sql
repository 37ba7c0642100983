-- name: jobs
-- Return a page of jobs that may still fire, newest first: the matches among a limited number of examined jobs, how many were
-- examined, and the last one.
WITH looked AS MATERIALIZED (
    SELECT j.id, j.state, j.type, j.pool, j.handler, j.name, j.unique_key, j.spec
    FROM jobs j WHERE j.tenant = ?1 AND j.id < ?2 ORDER BY j.id DESC LIMIT ?3
), matched AS MATERIALIZED (
    SELECT l.id, l.name FROM looked l
    WHERE (?5 IS NULL OR l.type = ?5) AND coalesce(l.pool = ?6, l.pool <> ?12) AND (?7 IS NULL OR l.handler = ?7)
          AND (?8 IS NULL OR l.name = ?8) AND (?9 IS NULL OR l.unique_key = ?9)
          AND (?10 IS NULL OR EXISTS (SELECT 1 FROM json_each(l.spec, '$.tags') tag WHERE tag.value = ?10))
          AND (l.state = 1 AND (?11 IS NULL OR ?11 = 'PAUSED')
               OR l.state = 0 AND (?11 IS NULL OR ?11 = 'ACTIVE')
                  AND (EXISTS (SELECT 1 FROM timeline t WHERE t.key = l.id AND t.due_ms IS NOT NULL)
                       OR EXISTS (SELECT 1 FROM executions x INDEXED BY executions_open WHERE x.job_id = l.id AND x.state < 2)))
    ORDER BY l.id DESC LIMIT ?4
)
SELECT json_object(
    'found', (SELECT json_group_array(json_object('id', id, 'name', name)) FROM (SELECT * FROM matched ORDER BY id DESC)),
    'examined', (SELECT count(*) FROM looked), 'last', (SELECT min(id) FROM looked));

-- name: dead_letters
-- Return a page of open dead letters, newest first: the matches among a limited number of examined ones, how many were examined,
-- and the last one.
WITH looked AS MATERIALIZED (
    SELECT d.execution_id AS id, d.job_id, d.pool, d.handler, d.died_ms
    FROM dead d INDEXED BY dead_open
    WHERE d.tenant = ?1 AND d.archived = 0 AND d.retried_as IS NULL AND d.execution_id < ?2
    ORDER BY d.execution_id DESC LIMIT ?3
), matched AS MATERIALIZED (
    SELECT l.id, l.job_id, l.died_ms FROM looked l
    WHERE (?5 IS NULL OR l.job_id = ?5) AND (?6 IS NULL OR l.pool = ?6) AND (?7 IS NULL OR l.handler = ?7)
          AND (?8 IS NULL OR l.died_ms >= ?8) AND (?9 IS NULL OR l.died_ms < ?9)
          AND (?10 IS NULL OR EXISTS (SELECT 1 FROM executions x
                                      WHERE x.id = l.id
                                            AND instr(lower((x.failure ->> 'type') || ': ' || (x.failure ->> 'message')), lower(?10))))
    ORDER BY l.id DESC LIMIT ?4
)
SELECT json_object(
    'found', (SELECT json_group_array(json_object('id', m.id, 'job_id', m.job_id, 'died_ms', m.died_ms,
                                                  'error_type', coalesce(x.failure ->> 'type', ''),
                                                  'message', substr(coalesce(x.failure ->> 'message', ''), 1, 500)))
              FROM (SELECT * FROM matched ORDER BY id DESC) m CROSS JOIN executions x ON x.id = m.id),
    'examined', (SELECT count(*) FROM looked), 'last', (SELECT min(id) FROM looked));

-- name: run_ends
-- Return the state and the attempt of some executions.
SELECT json_group_array(json_object('id', x.id, 'state', x.state, 'attempt', x.attempt))
FROM json_each(?2) e CROSS JOIN executions x ON x.id = e.value WHERE x.tenant = ?1;
