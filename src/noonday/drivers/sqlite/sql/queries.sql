-- name: job
-- Return a job, its fire row, whether it has an open execution, and whether its last execution is an unresolved dead letter.
SELECT json_object('job', json(j.whole_json),
                   'fire', (SELECT json_object('nominal_ms', t.nominal_ms, 'due_ms', t.due_ms, 'runs_left', t.runs_left) FROM timeline t WHERE t.key = j.id),
                   'open', json(iif(EXISTS (SELECT 1 FROM executions x INDEXED BY executions_open WHERE x.job_id = j.id AND x.state < 2), 'true', 'false')),
                   'died', json(iif(j.died, 'true', 'false')))
FROM job_rows j WHERE j.tenant = ?1 AND j.id = ?2;

-- name: jobs
-- Return a page of jobs without payloads, newest first. A COMPLETED or DEAD job is active, with no due time and no
-- open execution.
SELECT json_group_array(json_object('job', json(json), 'fire', json(fire), 'open', json(iif(open, 'true', 'false')), 'payload_bytes', payload_bytes,
                                    'died', json(iif(died, 'true', 'false'))))
FROM (SELECT j.json, j.died, coalesce(length(j.payload), 0) AS payload_bytes,
             (SELECT json_object('nominal_ms', t.nominal_ms, 'due_ms', t.due_ms, 'runs_left', t.runs_left) FROM timeline t WHERE t.key = j.id) AS fire,
             EXISTS (SELECT 1 FROM executions x INDEXED BY executions_open WHERE x.job_id = j.id AND x.state < 2) AS open
      FROM job_rows j
      WHERE j.tenant = ?1 AND (?2 IS NULL OR j.id < ?2)
            AND (?3 IS NULL OR j.type = ?3) AND (?4 IS NULL OR j.pool = ?4) AND (?5 IS NULL OR j.handler = ?5)
            AND (?6 IS NULL OR j.name = ?6) AND (?7 IS NULL OR j.unique_key = ?7)
            AND (?8 IS NULL OR EXISTS (SELECT 1 FROM json_each(j.spec, '$.tags') tag WHERE tag.value = ?8))
            AND (?9 IS NULL
                 OR (?9 = 'PAUSED' AND j.state = 1) OR (?9 = 'CANCELLED' AND j.state = 2)
                 OR (?9 IN ('ACTIVE', 'COMPLETED') AND j.state = 0
                     AND (?9 = 'COMPLETED') = (
                         NOT EXISTS (SELECT 1 FROM timeline t WHERE t.key = j.id AND t.due_ms IS NOT NULL)
                         AND NOT EXISTS (SELECT 1 FROM executions x INDEXED BY executions_open WHERE x.job_id = j.id AND x.state < 2))
                     AND (?9 = 'ACTIVE' OR NOT j.died)))
      ORDER BY j.id DESC LIMIT ?10);

-- name: dead_jobs
-- Return a page of DEAD jobs, as `jobs`. Only jobs with unresolved dead letters are read, each once, from the newest until the
-- page is full.
WITH RECURSIVE candidates (id) AS (
    SELECT (SELECT d.job_id FROM dead d INDEXED BY dead_of_jobs
            WHERE d.tenant = ?1 AND d.retried_as IS NULL AND (?2 IS NULL OR d.job_id < ?2) ORDER BY d.job_id DESC LIMIT 1)
    UNION ALL
    SELECT (SELECT d.job_id FROM dead d INDEXED BY dead_of_jobs
            WHERE d.tenant = ?1 AND d.retried_as IS NULL AND d.job_id < c.id ORDER BY d.job_id DESC LIMIT 1)
    FROM candidates c WHERE c.id IS NOT NULL
)
SELECT json_group_array(json_object('job', json(json), 'fire', json(fire), 'open', json(iif(open, 'true', 'false')), 'payload_bytes', payload_bytes,
                                    'died', json(iif(died, 'true', 'false'))))
FROM (SELECT j.json, j.died, coalesce(length(j.payload), 0) AS payload_bytes,
             (SELECT json_object('nominal_ms', t.nominal_ms, 'due_ms', t.due_ms, 'runs_left', t.runs_left) FROM timeline t WHERE t.key = j.id) AS fire,
             EXISTS (SELECT 1 FROM executions x INDEXED BY executions_open WHERE x.job_id = j.id AND x.state < 2) AS open
      FROM candidates c CROSS JOIN job_rows j ON j.tenant = ?1 AND j.id = c.id
      WHERE (?3 IS NULL OR j.type = ?3) AND (?4 IS NULL OR j.pool = ?4) AND (?5 IS NULL OR j.handler = ?5)
            AND (?6 IS NULL OR j.name = ?6) AND (?7 IS NULL OR j.unique_key = ?7)
            AND (?8 IS NULL OR EXISTS (SELECT 1 FROM json_each(j.spec, '$.tags') tag WHERE tag.value = ?8))
            AND ?9 = 'DEAD' AND j.state = 0
            AND NOT EXISTS (SELECT 1 FROM timeline t WHERE t.key = j.id AND t.due_ms IS NOT NULL)
            AND NOT EXISTS (SELECT 1 FROM executions x INDEXED BY executions_open WHERE x.job_id = j.id AND x.state < 2)
            AND j.died
      LIMIT ?10);

-- name: tasks
-- Return a page of jobs that call webhooks, newest first, with their latest execution and whether one runs.
SELECT json_group_array(json_object(
           'row', json_object('job', json_object('id', j.id, 'tenant', j.tenant, 'revision', j.revision, 'state', j.state,
                                                 'spec', json(j.spec), 'anchor_ms', j.anchor_ms, 'payload', j.payload,
                                                 'created_ms', j.created_ms, 'updated_ms', j.updated_ms, 'trace', j.trace,
                                                 'halted', j.halted),
                      'fire', json((SELECT json_object('nominal_ms', t.nominal_ms, 'due_ms', t.due_ms, 'runs_left', t.runs_left) FROM timeline t WHERE t.key = j.id)),
                      'open', json(iif(EXISTS (SELECT 1 FROM executions x INDEXED BY executions_open WHERE x.job_id = j.id AND x.state < 2), 'true', 'false'))),
           'running', json(iif(EXISTS (SELECT 1 FROM executions x INDEXED BY executions_open
                                       WHERE x.job_id = j.id AND x.state < 2 AND x.state = 1), 'true', 'false')),
           'latest', json((SELECT json_set(x.whole_json, '$.waits_until_ms', t.due_ms)
                 FROM execution_rows x LEFT JOIN timeline t ON t.key = x.id WHERE x.job_id = j.id AND x.id = j.latest))))
FROM (SELECT j.*,
             CASE WHEN j.type IN ('ONE_TIME', 'DELAYED')
                  THEN (SELECT x.id FROM executions x WHERE x.job_id = j.id
                        ORDER BY coalesce(x.finished_ms, 9000000000000000) DESC, x.id DESC LIMIT 1)
                  ELSE (SELECT x.id FROM executions x WHERE x.job_id = j.id ORDER BY x.id DESC LIMIT 1) END AS latest
      FROM jobs j INDEXED BY jobs_of_endpoints
      WHERE j.tenant = ?1 AND j.endpoint IS NOT NULL AND j.pool = 'webhooks' AND j.handler = 'webhook.call' AND j.state <> 2
            AND (?2 IS NULL
                 OR ?2 = CASE WHEN j.halted IS NOT NULL THEN 'FAILED'
                             WHEN j.state = 1 THEN 'PAUSED'
                             WHEN EXISTS (SELECT 1 FROM executions x INDEXED BY executions_open
                                          WHERE x.job_id = j.id AND x.state < 2 AND x.state = 1) THEN 'RUNNING'
                             WHEN EXISTS (SELECT 1 FROM timeline t WHERE t.key = j.id AND t.due_ms IS NOT NULL)
                                  OR EXISTS (SELECT 1 FROM executions x INDEXED BY executions_open WHERE x.job_id = j.id AND x.state < 2)
                             THEN 'SCHEDULED'
                             WHEN j.type IN ('ONE_TIME', 'DELAYED')
                                  AND (SELECT x.state FROM executions x WHERE x.job_id = j.id
                                       ORDER BY coalesce(x.finished_ms, 9000000000000000) DESC, x.id DESC LIMIT 1) <> 5 THEN 'FAILED'
                             ELSE 'COMPLETED' END)
      ORDER BY j.id DESC LIMIT ?4 OFFSET ?3) j;

-- name: count_tasks
-- Return how many rows `tasks` has, up to a limit.
SELECT count(*)
FROM (SELECT 1
      FROM jobs j INDEXED BY jobs_of_endpoints
      WHERE j.tenant = ?1 AND j.endpoint IS NOT NULL AND j.pool = 'webhooks' AND j.handler = 'webhook.call' AND j.state <> 2
            AND (?2 IS NULL
                 OR ?2 = CASE WHEN j.halted IS NOT NULL THEN 'FAILED'
                             WHEN j.state = 1 THEN 'PAUSED'
                             WHEN EXISTS (SELECT 1 FROM executions x INDEXED BY executions_open
                                          WHERE x.job_id = j.id AND x.state < 2 AND x.state = 1) THEN 'RUNNING'
                             WHEN EXISTS (SELECT 1 FROM timeline t WHERE t.key = j.id AND t.due_ms IS NOT NULL)
                                  OR EXISTS (SELECT 1 FROM executions x INDEXED BY executions_open WHERE x.job_id = j.id AND x.state < 2)
                             THEN 'SCHEDULED'
                             WHEN j.type IN ('ONE_TIME', 'DELAYED')
                                  AND (SELECT x.state FROM executions x WHERE x.job_id = j.id
                                       ORDER BY coalesce(x.finished_ms, 9000000000000000) DESC, x.id DESC LIMIT 1) <> 5 THEN 'FAILED'
                             ELSE 'COMPLETED' END)
      LIMIT ?3);

-- name: execution
-- Return a whole execution, with the due time of its dispatch row.
SELECT json_set(x.whole_json, '$.waits_until_ms', t.due_ms)
FROM execution_rows x LEFT JOIN timeline t ON t.key = x.id
WHERE x.id = ?2 AND x.tenant = ?1;

-- name: attempt_logs
-- Return the log lines of the attempts of an execution, in their order.
SELECT json_group_array(json_object('dispatch', dispatch, 'attempt', attempt, 'outcome', outcome, 'started_ms', started_ms,
                                    'ended_ms', ended_ms, 'logs', logs))
FROM (SELECT * FROM attempt_logs
      WHERE execution_id = ?2 AND EXISTS (SELECT 1 FROM executions x WHERE x.id = ?2 AND x.tenant = ?1)
      ORDER BY dispatch, started_ms);

-- name: executions
-- Return a page of executions of a job, newest first.
SELECT json_group_array(json_set(x.whole_json, '$.waits_until_ms', t.due_ms))
FROM (SELECT id, whole_json FROM execution_rows
      WHERE job_id = ?2 AND tenant = ?1 AND (?3 IS NULL OR id < ?3) AND (?4 IS NULL OR state = ?4)
      ORDER BY id DESC LIMIT ?5) x LEFT JOIN timeline t ON t.key = x.id;

-- name: executions_between
-- Return scheduled executions of a job by nominal time, with which the id begins.
SELECT json_group_array(json(json))
FROM (SELECT json FROM execution_rows WHERE job_id = ?1 AND id >= ?2 AND id < ?3 AND cause = 0 ORDER BY id LIMIT ?4);

-- name: decisions_between
-- Return decisions of a job that overlap an interval.
SELECT json_group_array(json_object('job_id', job_id, 'from_ms', from_ms, 'to_ms', to_ms, 'count', count, 'outcome', outcome,
                                    'reason', reason))
FROM (SELECT * FROM decisions WHERE job_id = ?1 AND from_ms <= ?3 AND to_ms >= ?2 ORDER BY from_ms LIMIT ?4);

-- name: payloads
-- Return the current payloads of some jobs.
SELECT json_group_array(json_object('id', id, 'payload', payload)) FROM jobs WHERE tenant = ?1 AND id IN (SELECT value FROM json_each(?2));

-- name: calls
-- Return a page of webhook calls of a tenant, newest first: the matches among a limited number of scanned executions, how many
-- were scanned, and the last id scanned.
WITH looked AS MATERIALIZED (
    SELECT x.id, x.job_id, x.state FROM executions x INDEXED BY executions_of_webhooks
    WHERE x.tenant = ?1 AND x.pool = 'webhooks' AND x.id < ?2 AND x.id >= ?3
    ORDER BY x.id DESC LIMIT ?6
), matched AS MATERIALIZED (
    SELECT l.id, l.job_id FROM looked l
    WHERE (?4 IS NULL OR l.state = ?4)
          AND EXISTS (SELECT 1 FROM jobs j
                      WHERE j.tenant = ?1 AND j.id = l.job_id AND j.endpoint IS NOT NULL AND (?5 IS NULL OR j.endpoint = ?5)
                            AND j.handler = 'webhook.call' AND j.state <> 2)
    ORDER BY l.id DESC LIMIT ?7
)
SELECT json_object(
    'calls', (SELECT json_group_array(json_object(
                             'execution', json_set(x.whole_json, '$.waits_until_ms', t.due_ms),
                             'died_ms', d.died_ms, 'archived', json(iif(d.archived, 'true', 'false')),
                             'retried_as', d.retried_as, 'resolved_ms', d.resolved_ms))
     FROM (SELECT * FROM matched ORDER BY id DESC) m CROSS JOIN execution_rows x ON x.job_id = m.job_id AND x.id = m.id
          LEFT JOIN timeline t ON t.key = x.id LEFT JOIN dead d ON d.execution_id = x.id),
    'examined', (SELECT count(*) FROM looked), 'last', (SELECT min(id) FROM looked));

-- name: calls_of_task
-- Return a page of webhook calls of one job, as `calls`.
WITH looked AS MATERIALIZED (
    SELECT x.id, x.job_id, x.state FROM executions x
    WHERE x.job_id = ?8 AND x.tenant = ?1 AND x.pool = 'webhooks' AND x.id < ?2 AND x.id >= ?3
    ORDER BY x.id DESC LIMIT ?6
), matched AS MATERIALIZED (
    SELECT l.id, l.job_id FROM looked l
    WHERE (?4 IS NULL OR l.state = ?4)
          AND EXISTS (SELECT 1 FROM jobs j
                      WHERE j.tenant = ?1 AND j.id = l.job_id AND j.endpoint IS NOT NULL AND (?5 IS NULL OR j.endpoint = ?5)
                            AND j.handler = 'webhook.call' AND j.state <> 2)
    ORDER BY l.id DESC LIMIT ?7
)
SELECT json_object(
    'calls', (SELECT json_group_array(json_object(
                             'execution', json_set(x.whole_json, '$.waits_until_ms', t.due_ms),
                             'died_ms', d.died_ms, 'archived', json(iif(d.archived, 'true', 'false')),
                             'retried_as', d.retried_as, 'resolved_ms', d.resolved_ms))
     FROM (SELECT * FROM matched ORDER BY id DESC) m CROSS JOIN execution_rows x ON x.job_id = m.job_id AND x.id = m.id
          LEFT JOIN timeline t ON t.key = x.id LEFT JOIN dead d ON d.execution_id = x.id),
    'examined', (SELECT count(*) FROM looked), 'last', (SELECT min(id) FROM looked));

-- name: known_calls
-- Return some webhook calls, in the form of `calls`.
SELECT json_group_array(json_object(
                        'execution', json_set(x.whole_json, '$.waits_until_ms', t.due_ms),
                        'died_ms', d.died_ms, 'archived', json(iif(d.archived, 'true', 'false')),
                        'retried_as', d.retried_as, 'resolved_ms', d.resolved_ms))
FROM json_each(?2) e CROSS JOIN execution_rows x ON x.id = e.value
     LEFT JOIN timeline t ON t.key = x.id LEFT JOIN dead d ON d.execution_id = x.id
WHERE x.tenant = ?1 AND x.pool = 'webhooks';

-- name: definitions
-- Return the definitions of jobs at some revisions, or the current definition where a revision is not kept.
SELECT json_group_array(json_object('job_id', j.id, 'wanted', e.value ->> 'revision', 'definition', json_object(
           'name', j.name, 'state', j.state, 'pool', j.pool, 'handler', j.handler,
           'endpoint', iif(r.revision IS NULL, j.endpoint, r.spec ->> '$.target.endpoint'),
           'revision', coalesce(r.revision, j.revision), 'payload', iif(r.revision IS NULL, j.payload, r.payload))))
FROM json_each(?2) e CROSS JOIN jobs j ON j.tenant = ?1 AND j.id = e.value ->> 'job_id'
     LEFT JOIN revisions r ON j.revision <> e.value ->> 'revision' AND r.job_id = j.id AND r.revision = e.value ->> 'revision';

-- name: dead
-- Return a page of dead letters, newest first. `+` keeps the read in the order of the key, so that it ends with the page.
SELECT json_group_array(json_object(
           'execution', json(x.whole_json),
           'died_ms', d.died_ms, 'archived', json(iif(d.archived, 'true', 'false')), 'retried_as', d.retried_as,
           'resolved_ms', d.resolved_ms, 'job_name', (SELECT j.name FROM jobs j WHERE j.tenant = x.tenant AND j.id = x.job_id)))
FROM (SELECT * FROM dead
      WHERE +tenant = ?1 AND archived = ?2 AND retried_as IS NULL
            AND (?3 IS NULL OR job_id = ?3) AND (?4 IS NULL OR pool = ?4) AND (?5 IS NULL OR handler = ?5)
            AND (?6 IS NULL OR died_ms >= ?6) AND (?7 IS NULL OR died_ms < ?7) AND (?8 IS NULL OR execution_id < ?8)
            AND (?10 = 0 OR EXISTS (SELECT 1 FROM jobs j
                                    WHERE j.tenant = ?1 AND j.id = dead.job_id AND j.endpoint IS NOT NULL
                                          AND (?11 IS NULL OR j.endpoint = ?11)))
            AND (?12 IS NULL OR EXISTS (SELECT 1 FROM executions x
                                        WHERE x.id = dead.execution_id
                                              AND instr(lower((x.failure ->> 'type') || ': ' || (x.failure ->> 'message')), lower(?12))))
      ORDER BY execution_id DESC LIMIT ?9) d CROSS JOIN execution_rows x ON x.id = d.execution_id;

-- name: dead_letter
-- Return one dead letter.
SELECT died_ms, archived, retried_as FROM dead WHERE execution_id = ?2 AND tenant = ?1;

-- name: jobs_waiting
-- Return how many jobs of a tenant have a due time, are paused, or are enqueued by handlers and not created yet, up to a limit.
-- Differs: no index has the tenant, so the query reads the timeline until it has counted enough.
SELECT min(?2, count(*) + (SELECT coalesce(sum(c.jobs), 0) FROM (SELECT jobs FROM child_jobs WHERE tenant = ?1 LIMIT ?2) c))
FROM (SELECT 1 FROM timeline t
      WHERE t.tenant = ?1 AND t.kind = 0
            AND (t.due_ms IS NOT NULL OR EXISTS (SELECT 1 FROM jobs j WHERE j.tenant = ?1 AND j.id = t.key AND j.state = 1))
      LIMIT ?2);

-- name: next_one_shot
-- Return when the next one-shot of a tenant is due, if it is among the first 10,000 rows of the timeline.
SELECT t.due_ms
FROM (SELECT due_ms, key, kind, tenant FROM timeline WHERE due_ms IS NOT NULL ORDER BY due_ms, key LIMIT 10000) t
WHERE t.tenant = ?1 AND t.kind = 0
      AND EXISTS (SELECT 1 FROM jobs j WHERE j.tenant = ?1 AND j.id = t.key AND j.type IN ('ONE_TIME', 'DELAYED'))
LIMIT 1;

-- name: keys_taken
-- Return which of some unique keys a tenant uses.
SELECT json_group_array(j.unique_key)
FROM json_each(?2) e CROSS JOIN jobs j ON j.tenant = ?1 AND j.unique_key = e.value;

-- name: jobs_named
-- Return the first two jobs of each of some names. Two index entries per name are read.
SELECT json_group_array(json_object('name', e.value, 'ids', json((
    SELECT json_group_array(first.id)
    FROM (SELECT j.id FROM jobs j INDEXED BY jobs_of_names
          WHERE j.tenant = ?1 AND j.name = e.value AND j.state <> 2 ORDER BY j.id LIMIT 2) first))))
FROM json_each(?2) e;

-- name: declared
-- Return live jobs whose unique key begins with a prefix.
SELECT json_group_array(json_object('key', unique_key, 'id', id))
FROM jobs WHERE tenant = ?1 AND unique_key >= ?2 AND unique_key < ?2 || char(1114111) AND state <> 2;
