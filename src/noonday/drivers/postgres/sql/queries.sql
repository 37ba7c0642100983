-- name: job
-- Return a job, its fire row, whether it has an open execution, and whether its last execution is an unresolved dead letter.
SELECT json_build_object('job', job_json(j, true),
                         'fire', (SELECT fire_json(t) FROM timeline t WHERE t.key = j.id),
                         'open', EXISTS (SELECT 1 FROM executions x WHERE x.job_id = j.id AND x.state < 2),
                         'died', job_died(j))::text
FROM jobs j WHERE j.tenant = $1 AND j.id = $2::uuid;

-- name: jobs
-- Return a page of jobs without payloads, newest first. A COMPLETED or DEAD job is active, with no due time and no
-- open execution.
-- Differs: here and below, one plan serves all filters. A cursor or a unique key is a bound of the id, which is always
-- present. The other conditions are written so that the planner expects matches and reads a page in order instead of sorting
-- all rows. OFFSET 0 keeps an index lookup per row from becoming one read of all rows.
WITH keyed AS MATERIALIZED (
    SELECT id FROM jobs WHERE tenant = $1 AND unique_key = $7::text
)
SELECT coalesce(json_agg(json_build_object('job', job, 'fire', fire, 'open', open, 'payload_bytes', payload_bytes,
                                           'died', died)), '[]')::text
FROM (SELECT job_json(j, false) AS job, coalesce(octet_length(j.payload), 0) AS payload_bytes,
             (SELECT fire_json(t) FROM timeline t WHERE t.key = j.id) AS fire,
             EXISTS (SELECT 1 FROM executions x WHERE x.job_id = j.id AND x.state < 2 OFFSET 0) AS open,
             job_died(j) AS died
      FROM jobs j
      WHERE j.tenant = $1 AND j.id < $2::uuid
            AND j.id >= CASE WHEN $7 IS NULL THEN '00000000-0000-0000-0000-000000000000' ELSE (SELECT id FROM keyed) END
            AND j.id <= CASE WHEN $7 IS NULL THEN 'ffffffff-ffff-ffff-ffff-ffffffffffff' ELSE (SELECT id FROM keyed) END
            AND coalesce(j.type = $3, $3 IS NULL) AND coalesce(j.pool = $4, $4 IS NULL)
            AND coalesce(j.handler = $5, $5 IS NULL) AND coalesce(j.name = $6, $6 IS NULL)
            AND CASE WHEN $8::text IS NULL THEN true ELSE j.spec::jsonb -> 'tags' ? $8 END
            AND CASE WHEN $9::text IS NULL THEN true
                     WHEN $9 = 'PAUSED' THEN j.state = 1
                     WHEN $9 = 'CANCELLED' THEN j.state = 2
                     WHEN $9 IN ('ACTIVE', 'COMPLETED') THEN j.state = 0 AND ($9 = 'ACTIVE') = (
                         EXISTS (SELECT 1 FROM timeline t WHERE t.key = j.id AND t.due_ms IS NOT NULL OFFSET 0)
                         OR EXISTS (SELECT 1 FROM executions x WHERE x.job_id = j.id AND x.state < 2 OFFSET 0))
                         AND ($9 = 'ACTIVE' OR NOT job_died(j))
                END
      ORDER BY j.id DESC LIMIT $10) page;

-- name: dead_jobs
-- Return a page of DEAD jobs, as `jobs`. Only jobs with unresolved dead letters are read, each once, from the newest until the
-- page is full.
-- Differs: as `jobs`. A row comparison names the tenant.
WITH RECURSIVE candidates (id) AS (
    SELECT (SELECT d.job_id FROM dead d
            WHERE (d.tenant, d.job_id) >= ($1::text, '00000000-0000-0000-0000-000000000000')
                  AND (d.tenant, d.job_id) < ($1, $2::uuid) AND d.retried_as IS NULL
            ORDER BY d.tenant DESC, d.job_id DESC LIMIT 1)
    UNION ALL
    SELECT (SELECT d.job_id FROM dead d
            WHERE (d.tenant, d.job_id) >= ($1::text, '00000000-0000-0000-0000-000000000000')
                  AND (d.tenant, d.job_id) < ($1, c.id) AND d.retried_as IS NULL
            ORDER BY d.tenant DESC, d.job_id DESC LIMIT 1)
    FROM candidates c WHERE c.id IS NOT NULL
)
SELECT coalesce(json_agg(json_build_object('job', job, 'fire', fire, 'open', false, 'payload_bytes', payload_bytes,
                                           'died', true)), '[]')::text
FROM (SELECT job_json(j, false) AS job, coalesce(octet_length((j).payload), 0) AS payload_bytes,
             (SELECT fire_json(t) FROM timeline t WHERE t.key = c.id) AS fire
      FROM candidates c CROSS JOIN LATERAL (SELECT j FROM jobs j WHERE j.tenant = $1 AND j.id = c.id OFFSET 0) found
      WHERE coalesce((j).type = $3, $3 IS NULL) AND coalesce((j).pool = $4, $4 IS NULL)
            AND coalesce((j).handler = $5, $5 IS NULL) AND coalesce((j).name = $6, $6 IS NULL)
            AND coalesce((j).unique_key = $7, $7 IS NULL)
            AND CASE WHEN $8::text IS NULL THEN true ELSE (j).spec::jsonb -> 'tags' ? $8 END
            AND $9::text = 'DEAD' AND (j).state = 0
            AND NOT EXISTS (SELECT 1 FROM timeline t WHERE t.key = c.id AND t.due_ms IS NOT NULL OFFSET 0)
            AND NOT EXISTS (SELECT 1 FROM executions x WHERE x.job_id = c.id AND x.state < 2 OFFSET 0)
            AND job_died(j)
      LIMIT $10) page;

-- name: tasks
-- Return a page of jobs that call webhooks, newest first, with their latest execution and whether one runs.
-- Differs: as `jobs` and `executions`. To filter by status, open executions are read once, because a lookup per job visits the
-- partition of every day. The columns that are shown are looked up after the pages before were skipped. `+ 0` selects the
-- index by job instead of the index of all running executions.
WITH open_jobs AS MATERIALIZED (
    SELECT x.job_id, bool_or(x.state = 1) AS running FROM executions x WHERE x.state < 2 AND x.tenant = $1 GROUP BY x.job_id
)
SELECT coalesce(json_agg(json_build_object(
           'row', json_build_object('job', job_json(page.job, true),
                            'fire', (SELECT fire_json(t) FROM timeline t WHERE t.key = page.id),
                            'open', EXISTS (SELECT 1 FROM executions x WHERE x.job_id = page.id AND x.state < 2 OFFSET 0)),
           'running', EXISTS (SELECT 1 FROM executions x WHERE x.job_id = page.id AND x.state < 2 AND x.state + 0 = 1 OFFSET 0),
           'latest', CASE WHEN page.type IN ('ONE_TIME', 'DELAYED')
                THEN (SELECT execution_json(x, (SELECT t.due_ms FROM timeline t WHERE t.key = x.id), true) FROM executions x
                      WHERE (x.job_id, x.id) >= (page.id, '00000000-0000-0000-0000-000000000000')
                            AND (x.job_id, x.id) <= (page.id, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
                      ORDER BY coalesce(x.finished_ms, 9000000000000000) DESC, x.id DESC LIMIT 1)
                ELSE (SELECT execution_json(x, (SELECT t.due_ms FROM timeline t WHERE t.key = x.id), true) FROM executions x
                      WHERE (x.job_id, x.id) >= (page.id, '00000000-0000-0000-0000-000000000000')
                            AND (x.job_id, x.id) <= (page.id, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
                      ORDER BY x.job_id DESC, x.id DESC LIMIT 1)
           END) ORDER BY page.id DESC), '[]')::text
FROM (SELECT j AS job, j.id, j.type
      FROM jobs j
      WHERE j.tenant = $1 AND j.endpoint IS NOT NULL AND j.pool = 'webhooks' AND j.handler = 'webhook.call' AND j.state <> 2
            AND CASE WHEN $2::text IS NULL THEN true
                     WHEN j.halted IS NOT NULL THEN $2 = 'FAILED'
                     WHEN j.state = 1 THEN $2 = 'PAUSED'
                     WHEN $2 = 'PAUSED' THEN false
                     WHEN j.id IN (SELECT o.job_id FROM open_jobs o WHERE o.running) THEN $2 = 'RUNNING'
                     WHEN $2 = 'RUNNING' THEN false
                     WHEN EXISTS (SELECT 1 FROM timeline t WHERE t.key = j.id AND t.due_ms IS NOT NULL OFFSET 0)
                          OR j.id IN (SELECT o.job_id FROM open_jobs o)
                     THEN $2 = 'SCHEDULED'
                     WHEN $2 = 'SCHEDULED' THEN false
                     WHEN j.type IN ('ONE_TIME', 'DELAYED')
                          AND (SELECT x.state FROM executions x
                               WHERE (x.job_id, x.id) >= (j.id, '00000000-0000-0000-0000-000000000000')
                                     AND (x.job_id, x.id) <= (j.id, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
                               ORDER BY coalesce(x.finished_ms, 9000000000000000) DESC, x.id DESC LIMIT 1) <> 5
                     THEN $2 = 'FAILED'
                     ELSE $2 = 'COMPLETED' END
      ORDER BY j.id DESC OFFSET $3 LIMIT $4) page;

-- name: count_tasks
-- Return how many rows `tasks` has, up to a limit.
-- Differs: as `tasks`.
WITH open_jobs AS MATERIALIZED (
    SELECT x.job_id, bool_or(x.state = 1) AS running FROM executions x WHERE x.state < 2 AND x.tenant = $1 GROUP BY x.job_id
)
SELECT count(*)
FROM (SELECT 1
      FROM jobs j
      WHERE j.tenant = $1 AND j.endpoint IS NOT NULL AND j.pool = 'webhooks' AND j.handler = 'webhook.call' AND j.state <> 2
            AND CASE WHEN $2::text IS NULL THEN true
                     WHEN j.halted IS NOT NULL THEN $2 = 'FAILED'
                     WHEN j.state = 1 THEN $2 = 'PAUSED'
                     WHEN $2 = 'PAUSED' THEN false
                     WHEN j.id IN (SELECT o.job_id FROM open_jobs o WHERE o.running) THEN $2 = 'RUNNING'
                     WHEN $2 = 'RUNNING' THEN false
                     WHEN EXISTS (SELECT 1 FROM timeline t WHERE t.key = j.id AND t.due_ms IS NOT NULL OFFSET 0)
                          OR j.id IN (SELECT o.job_id FROM open_jobs o)
                     THEN $2 = 'SCHEDULED'
                     WHEN $2 = 'SCHEDULED' THEN false
                     WHEN j.type IN ('ONE_TIME', 'DELAYED')
                          AND (SELECT x.state FROM executions x
                               WHERE (x.job_id, x.id) >= (j.id, '00000000-0000-0000-0000-000000000000')
                                     AND (x.job_id, x.id) <= (j.id, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
                               ORDER BY coalesce(x.finished_ms, 9000000000000000) DESC, x.id DESC LIMIT 1) <> 5
                     THEN $2 = 'FAILED'
                     ELSE $2 = 'COMPLETED' END
      LIMIT $3) counted;

-- name: execution
-- Return a whole execution, with the due time of its dispatch row.
SELECT execution_json(x, (SELECT t.due_ms FROM timeline t WHERE t.key = x.id), true)::text
FROM executions x WHERE x.id = $2::uuid AND x.tenant = $1;

-- name: attempt_logs
-- Return the log lines of the attempts of an execution, in their order.
SELECT coalesce(json_agg(json_build_object('dispatch', l.dispatch, 'attempt', l.attempt, 'outcome', l.outcome,
                                           'started_ms', l.started_ms, 'ended_ms', l.ended_ms, 'logs', base64(l.logs))
                         ORDER BY l.dispatch, l.started_ms), '[]')::text
FROM attempt_logs l
WHERE l.execution_id = $2::uuid AND EXISTS (SELECT 1 FROM executions x WHERE x.id = $2::uuid AND x.tenant = $1);

-- name: executions
-- Return a page of executions of a job, newest first.
-- Differs: a row comparison names the job, which leaves no index but the one by job. With a bound of the id alone, a job
-- without executions would cost a scan of the executions of all jobs.
SELECT coalesce(json_agg(execution), '[]')::text
FROM (SELECT execution_json(x, (SELECT t.due_ms FROM timeline t WHERE t.key = x.id), true) AS execution
      FROM executions x
      WHERE (x.job_id, x.id) >= ($2::uuid, '00000000-0000-0000-0000-000000000000') AND (x.job_id, x.id) < ($2, $3::uuid)
            AND x.tenant = $1 AND coalesce(x.state = $4::smallint, $4 IS NULL)
      ORDER BY x.job_id DESC, x.id DESC LIMIT $5) page;

-- name: executions_between
-- Return scheduled executions of a job by nominal time, with which the id begins.
-- Differs: as `executions`.
SELECT coalesce(json_agg(execution), '[]')::text
FROM (SELECT execution_json(x, NULL, false) AS execution
      FROM executions x WHERE (x.job_id, x.id) >= ($1::uuid, $2::uuid) AND (x.job_id, x.id) < ($1, $3::uuid) AND x.cause = 0
      ORDER BY x.job_id, x.id LIMIT $4) page;

-- name: decisions_between
-- Return decisions of a job that overlap an interval.
SELECT coalesce(json_agg(json_build_object('job_id', job_id, 'from_ms', from_ms, 'to_ms', to_ms, 'count', count, 'outcome', outcome,
                                           'reason', reason)), '[]')::text
FROM (SELECT * FROM decisions WHERE job_id = $1::uuid AND from_ms <= $3 AND to_ms >= $2 ORDER BY from_ms LIMIT $4) page;

-- name: payloads
-- Return the current payloads of some jobs.
SELECT coalesce(json_agg(json_build_object('id', id, 'payload', base64(payload))), '[]')::text FROM jobs WHERE tenant = $1 AND id = ANY ($2::uuid[]);

-- name: calls
-- Return a page of webhook calls of a tenant, newest first: the matches among a limited number of scanned executions, how many
-- were scanned, and the last id scanned.
-- Differs: a row comparison names the tenant, which leaves no index but the one by tenant. The separate bounds of the id tell
-- which days' partitions to skip.
WITH looked AS MATERIALIZED (
    SELECT x.id, x.job_id, x.state FROM executions x
    WHERE x.pool = 'webhooks' AND (x.tenant, x.id) >= ($1::text, $3::uuid) AND (x.tenant, x.id) < ($1, $2::uuid)
          AND x.id >= $3 AND x.id < $2
    ORDER BY x.tenant DESC, x.id DESC LIMIT $6
), matched AS MATERIALIZED (
    SELECT l.id FROM looked l
    WHERE coalesce(l.state = $4::smallint, $4 IS NULL)
          AND EXISTS (SELECT 1 FROM jobs j
                      WHERE j.tenant = $1 AND j.id = l.job_id AND j.endpoint IS NOT NULL AND coalesce(j.endpoint = $5::text, $5 IS NULL)
                            AND j.handler = 'webhook.call' AND j.state <> 2 OFFSET 0)
    ORDER BY l.id DESC LIMIT $7
)
SELECT json_build_object(
    'calls', (SELECT coalesce(json_agg(json_build_object(
                                  'execution', x.whole, 'died_ms', d.died_ms, 'archived', coalesce(d.archived, 0) = 1,
                                  'retried_as', d.retried_as, 'resolved_ms', d.resolved_ms) ORDER BY m.id DESC), '[]')
     FROM matched m
          CROSS JOIN LATERAL (SELECT execution_json(x, (SELECT t.due_ms FROM timeline t WHERE t.key = x.id), true) AS whole
                              FROM executions x WHERE x.id = m.id OFFSET 0) x
          LEFT JOIN dead d ON d.execution_id = m.id),
    'examined', (SELECT count(*) FROM looked), 'last', (SELECT id FROM looked ORDER BY id LIMIT 1))::text;

-- name: calls_of_task
-- Return a page of webhook calls of one job, as `calls`.
-- Differs: as `executions`. The job's row tells the tenant.
WITH looked AS MATERIALIZED (
    SELECT x.id, x.job_id, x.state, x.pool FROM executions x
    WHERE (x.job_id, x.id) >= ($8::uuid, $3::uuid) AND (x.job_id, x.id) < ($8, $2::uuid)
    ORDER BY x.job_id DESC, x.id DESC LIMIT $6
), matched AS MATERIALIZED (
    SELECT l.id FROM looked l
    WHERE coalesce(l.state = $4::smallint, $4 IS NULL) AND l.pool = 'webhooks'
          AND EXISTS (SELECT 1 FROM jobs j
                      WHERE j.tenant = $1 AND j.id = l.job_id AND j.endpoint IS NOT NULL AND coalesce(j.endpoint = $5::text, $5 IS NULL)
                            AND j.handler = 'webhook.call' AND j.state <> 2 OFFSET 0)
    ORDER BY l.id DESC LIMIT $7
)
SELECT json_build_object(
    'calls', (SELECT coalesce(json_agg(json_build_object(
                                  'execution', x.whole, 'died_ms', d.died_ms, 'archived', coalesce(d.archived, 0) = 1,
                                  'retried_as', d.retried_as, 'resolved_ms', d.resolved_ms) ORDER BY m.id DESC), '[]')
     FROM matched m
          CROSS JOIN LATERAL (SELECT execution_json(x, (SELECT t.due_ms FROM timeline t WHERE t.key = x.id), true) AS whole
                              FROM executions x WHERE x.id = m.id OFFSET 0) x
          LEFT JOIN dead d ON d.execution_id = m.id),
    'examined', (SELECT count(*) FROM looked), 'last', (SELECT id FROM looked ORDER BY id LIMIT 1))::text;

-- name: known_calls
-- Return some webhook calls, in the form of `calls`.
SELECT coalesce(json_agg(json_build_object(
           'execution', execution_json(x, (SELECT t.due_ms FROM timeline t WHERE t.key = x.id), true), 'died_ms', d.died_ms,
           'archived', coalesce(d.archived, 0) = 1, 'retried_as', d.retried_as, 'resolved_ms', d.resolved_ms)), '[]')::text
FROM unnest($2::uuid[]) e (id) JOIN executions x ON x.id = e.id LEFT JOIN dead d ON d.execution_id = e.id
WHERE x.tenant = $1 AND x.pool = 'webhooks';

-- name: definitions
-- Return the definitions of jobs at some revisions, or the current definition where a revision is not kept.
SELECT coalesce(json_agg(json_build_object('job_id', j.id, 'wanted', e.revision, 'definition', json_build_object(
           'name', j.name, 'state', j.state, 'pool', j.pool, 'handler', j.handler,
           'endpoint', CASE WHEN r.revision IS NULL THEN j.endpoint ELSE r.spec::jsonb -> 'target' ->> 'endpoint' END,
           'revision', coalesce(r.revision, j.revision),
           'payload', base64(CASE WHEN r.revision IS NULL THEN j.payload ELSE r.payload END)))), '[]')::text
FROM json_to_recordset($2::text::json) e (job_id uuid, revision integer) JOIN jobs j ON j.tenant = $1 AND j.id = e.job_id
     LEFT JOIN revisions r ON j.revision <> e.revision AND r.job_id = e.job_id AND r.revision = e.revision;

-- name: dead
-- Return a page of dead letters, newest first.
-- Differs: in two halves, of which one is not read, because the index of unresolved dead letters has no archived ones.
SELECT coalesce(json_agg(json_build_object(
           'execution', x.whole, 'died_ms', d.died_ms, 'archived', d.archived = 1, 'retried_as', d.retried_as,
           'resolved_ms', d.resolved_ms, 'job_name', (SELECT j.name FROM jobs j WHERE j.tenant = d.tenant AND j.id = d.job_id)) ORDER BY d.execution_id DESC), '[]')::text
FROM ((SELECT * FROM dead
       WHERE NOT $2::boolean AND archived = 0 AND retried_as IS NULL
             AND (tenant, execution_id) >= ($1::text, '00000000-0000-0000-0000-000000000000')
             AND (tenant, execution_id) < ($1, $8::uuid)
             AND coalesce(job_id = $3::uuid, $3 IS NULL) AND coalesce(pool = $4, $4 IS NULL)
             AND coalesce(handler = $5, $5 IS NULL)
             AND coalesce(died_ms >= $6::bigint, true) AND coalesce(died_ms < $7::bigint, true)
             AND CASE WHEN $10::boolean THEN EXISTS (
                          SELECT 1 FROM jobs j WHERE j.tenant = dead.tenant AND j.id = dead.job_id AND j.endpoint IS NOT NULL
                                                     AND coalesce(j.endpoint = $11::text, $11 IS NULL) OFFSET 0) ELSE true END
             AND CASE WHEN $12::text IS NOT NULL THEN EXISTS (
                          SELECT 1 FROM executions x
                          WHERE x.id = dead.execution_id
                                AND strpos(lower((x.failure::jsonb ->> 'type' || ': ' || (x.failure::jsonb ->> 'message')) COLLATE "C"),
                                           lower($12 COLLATE "C")) > 0 OFFSET 0) ELSE true END
       ORDER BY tenant DESC, execution_id DESC LIMIT $9)
      UNION ALL
      (SELECT * FROM dead
       WHERE $2 AND archived = 1 AND retried_as IS NULL AND tenant = $1 AND execution_id < $8
             AND coalesce(job_id = $3, $3 IS NULL) AND coalesce(pool = $4, $4 IS NULL)
             AND coalesce(handler = $5, $5 IS NULL) AND coalesce(died_ms >= $6, true) AND coalesce(died_ms < $7, true)
             AND CASE WHEN $10::boolean THEN EXISTS (
                          SELECT 1 FROM jobs j WHERE j.tenant = dead.tenant AND j.id = dead.job_id AND j.endpoint IS NOT NULL
                                                     AND coalesce(j.endpoint = $11::text, $11 IS NULL) OFFSET 0) ELSE true END
             AND CASE WHEN $12::text IS NOT NULL THEN EXISTS (
                          SELECT 1 FROM executions x
                          WHERE x.id = dead.execution_id
                                AND strpos(lower((x.failure::jsonb ->> 'type' || ': ' || (x.failure::jsonb ->> 'message')) COLLATE "C"),
                                           lower($12 COLLATE "C")) > 0 OFFSET 0) ELSE true END
       ORDER BY execution_id DESC LIMIT $9)) d
     CROSS JOIN LATERAL (SELECT execution_json(x, NULL, true) AS whole FROM executions x WHERE x.id = d.execution_id OFFSET 0) x;

-- name: dead_letter
-- Return one dead letter.
SELECT died_ms, archived = 1 AS archived, retried_as::text FROM dead WHERE execution_id = $2::uuid AND tenant = $1;

-- name: jobs_waiting
-- Return how many jobs of a tenant have a due time, are paused, or are enqueued by handlers and not created yet, up to a limit.
-- Differs: reads the index of the tenant's rows: first those with a due time, then the paused ones among those without.
WITH timed AS MATERIALIZED (
    SELECT count(*) AS jobs
    FROM (SELECT 1 FROM timeline t
          WHERE (t.tenant, t.due_ms) >= ($1::text, 0) AND (t.tenant, t.due_ms) <= ($1, 9223372036854775807) AND t.kind = 0
          ORDER BY t.tenant, t.due_ms LIMIT $2::bigint) page
)
SELECT least($2, timed.jobs
             + (SELECT coalesce(sum(c.jobs), 0) FROM (SELECT jobs FROM child_jobs WHERE tenant = $1 LIMIT $2) c)
             + CASE WHEN timed.jobs >= $2 THEN 0 ELSE (
    SELECT count(*)
    FROM (SELECT t.key FROM timeline t WHERE t.tenant = $1 AND t.due_ms IS NULL AND t.kind = 0
          LIMIT greatest($2, 10000)) timeless
    WHERE EXISTS (SELECT 1 FROM jobs j WHERE j.tenant = $1 AND j.id = timeless.key AND j.state = 1 OFFSET 0)
) END)
FROM timed;

-- name: next_one_shot
-- Return when the next one-shot of a tenant is due, if it is among the first 1,000 rows of its timeline.
-- Differs: as `executions`.
SELECT t.due_ms
FROM (SELECT * FROM timeline t
      WHERE (t.tenant, t.due_ms) >= ($1::text, 0) AND (t.tenant, t.due_ms) <= ($1, 9223372036854775807)
      ORDER BY t.tenant, t.due_ms LIMIT 1000) t
WHERE t.kind = 0
      AND EXISTS (SELECT 1 FROM jobs j
                  WHERE j.tenant = t.tenant AND j.id = t.key AND j.type IN ('ONE_TIME', 'DELAYED') OFFSET 0)
ORDER BY t.tenant, t.due_ms LIMIT 1;

-- name: keys_taken
-- Return which of some unique keys a tenant uses.
SELECT coalesce(json_agg(j.unique_key), '[]')::text FROM unnest($2::text[]) e (key) JOIN jobs j ON j.tenant = $1 AND j.unique_key = e.key;

-- name: jobs_named
-- Return the first two jobs of each of some names. Two index entries per name are read.
SELECT coalesce(json_agg(json_build_object('name', e.name, 'ids', (
    SELECT coalesce(json_agg(first.id), '[]')
    FROM (SELECT j.id FROM jobs j WHERE j.tenant = $1 AND j.name = e.name AND j.state <> 2 ORDER BY j.id LIMIT 2) first))), '[]')::text
FROM unnest($2::text[]) e (name);

-- name: declared
-- Return live jobs whose unique key begins with a prefix.
SELECT coalesce(json_agg(json_build_object('key', unique_key, 'id', id)), '[]')::text
FROM jobs WHERE tenant = $1 AND unique_key >= $2 AND unique_key < $2 || chr(1114111) AND state <> 2;
