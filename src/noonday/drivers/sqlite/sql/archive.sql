-- name: job
-- A job, what it waits for, and whether anything of it is open.
SELECT json_array(json_array(j.id, j.tenant, j.revision, j.state, json(j.spec), j.anchor_ms, j.payload, j.created_ms,
                             j.updated_ms, j.trace, j.halted),
                  (SELECT json_array(t.nominal_ms, t.due_ms, t.runs_left) FROM timeline t WHERE t.key = j.id),
                  EXISTS (SELECT 1 FROM executions x INDEXED BY executions_open WHERE x.job_id = j.id AND x.state < 2))
FROM jobs j WHERE j.tenant = ?1 AND j.id = ?2;

-- name: jobs
-- Jobs without their payloads, newest first. COMPLETED: active, with no time on the timeline and nothing open.
SELECT json_group_array(json_array(json_array(id, tenant, revision, state, json(spec), anchor_ms, NULL, created_ms, updated_ms,
                                              trace, halted), json(fire), open, payload_bytes))
FROM (SELECT j.id, j.tenant, j.revision, j.state, j.spec, j.anchor_ms, j.created_ms, j.updated_ms, j.trace, j.halted,
             coalesce(length(j.payload), 0) AS payload_bytes,
             (SELECT json_array(t.nominal_ms, t.due_ms, t.runs_left) FROM timeline t WHERE t.key = j.id) AS fire,
             EXISTS (SELECT 1 FROM executions x INDEXED BY executions_open WHERE x.job_id = j.id AND x.state < 2) AS open
      FROM jobs j
      WHERE j.tenant = ?1 AND (?2 IS NULL OR j.id < ?2)
            AND (?3 IS NULL OR j.type = ?3) AND (?4 IS NULL OR j.pool = ?4) AND (?5 IS NULL OR j.handler = ?5)
            AND (?6 IS NULL OR j.name = ?6) AND (?7 IS NULL OR j.unique_key = ?7)
            AND (?8 IS NULL OR EXISTS (SELECT 1 FROM json_each(j.spec, '$.tags') tag WHERE tag.value = ?8))
            AND (?9 IS NULL
                 OR (?9 = 'PAUSED' AND j.state = 1) OR (?9 = 'CANCELLED' AND j.state = 2)
                 OR (?9 IN ('ACTIVE', 'COMPLETED') AND j.state = 0
                     AND (?9 = 'COMPLETED') = (
                         NOT EXISTS (SELECT 1 FROM timeline t WHERE t.key = j.id AND t.due_ms IS NOT NULL)
                         AND NOT EXISTS (SELECT 1 FROM executions x INDEXED BY executions_open WHERE x.job_id = j.id AND x.state < 2))))
      ORDER BY j.id DESC LIMIT ?10);

-- name: tasks
-- Jobs that call webhooks, newest first, with their latest execution and whether one runs.
SELECT json_group_array(json_array(
           json_array(json_array(j.id, j.tenant, j.revision, j.state, json(j.spec), j.anchor_ms, j.payload, j.created_ms,
                                 j.updated_ms, j.trace, j.halted),
                      json((SELECT json_array(t.nominal_ms, t.due_ms, t.runs_left) FROM timeline t WHERE t.key = j.id)),
                      EXISTS (SELECT 1 FROM executions x INDEXED BY executions_open WHERE x.job_id = j.id AND x.state < 2)),
           EXISTS (SELECT 1 FROM executions x INDEXED BY executions_open WHERE x.job_id = j.id AND x.state < 2 AND x.state = 1),
           json((SELECT json_array(x.id, x.job_id, x.tenant, x.nominal_ms, x.due_ms, x.state, x.attempt, x.dispatch, x.revision,
                                   x.cause, x.pool, x.handler, x.lane, x.created_ms, x.fired_ms, x.buffered, x.watch,
                                   json(iif(x.state < 2, coalesce(x.slots, '[]'), '[]')), t.due_ms, x.worker_id, x.started_ms,
                                   x.finished_ms, x.cancel, x.failure, x.progress, x.result, x.retry_of, x.moves)
                 FROM executions x LEFT JOIN timeline t ON t.key = x.id WHERE x.job_id = j.id AND x.id = j.latest))))
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
-- How many `tasks` has, counted up to a number.
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
-- An execution whole, with the due time of its dispatch row.
SELECT json_array(x.id, x.job_id, x.tenant, x.nominal_ms, x.due_ms, x.state, x.attempt, x.dispatch, x.revision, x.cause, x.pool,
                  x.handler, x.lane, x.created_ms, x.fired_ms, x.buffered, x.watch, json(iif(x.state < 2, coalesce(x.slots, '[]'), '[]')), t.due_ms, x.worker_id, x.started_ms,
                  x.finished_ms, x.cancel, x.failure, x.progress, x.result, x.retry_of, x.moves)
FROM executions x LEFT JOIN timeline t ON t.key = x.id
WHERE x.id = ?2 AND x.tenant = ?1;

-- name: executions
-- Executions of a job, newest first.
SELECT json_group_array(json_array(x.id, x.job_id, x.tenant, x.nominal_ms, x.due_ms, x.state, x.attempt, x.dispatch, x.revision,
                                   x.cause, x.pool, x.handler, x.lane, x.created_ms, x.fired_ms, x.buffered, x.watch, json(iif(x.state < 2, coalesce(x.slots, '[]'), '[]')),
                                   t.due_ms, x.worker_id, x.started_ms, x.finished_ms, x.cancel, x.failure, x.progress, x.result,
                                   x.retry_of, x.moves))
FROM (SELECT * FROM executions
      WHERE job_id = ?2 AND tenant = ?1 AND (?3 IS NULL OR id < ?3) AND (?4 IS NULL OR state = ?4)
      ORDER BY id DESC LIMIT ?5) x LEFT JOIN timeline t ON t.key = x.id;

-- name: executions_between
-- Scheduled executions of a job by nominal time. The id begins with it.
SELECT json_group_array(json_array(id, job_id, tenant, nominal_ms, due_ms, state, attempt, dispatch, revision, cause, pool,
                                   handler, lane, created_ms, fired_ms, buffered, watch, json(iif(state < 2, coalesce(slots, '[]'), '[]')), NULL, worker_id, started_ms,
                                   finished_ms, cancel, failure, NULL, NULL, retry_of))
FROM (SELECT * FROM executions WHERE job_id = ?1 AND id >= ?2 AND id < ?3 AND cause = 0 ORDER BY id LIMIT ?4);

-- name: decisions_between
-- Decisions of a job that touch an interval.
SELECT json_group_array(json_array(job_id, from_ms, to_ms, count, outcome, reason))
FROM (SELECT * FROM decisions WHERE job_id = ?1 AND from_ms <= ?3 AND to_ms >= ?2 ORDER BY from_ms LIMIT ?4);

-- name: payloads
-- The present payloads of some jobs.
SELECT json_group_array(json_array(id, payload)) FROM jobs WHERE tenant = ?1 AND id IN (SELECT value FROM json_each(?2));

-- name: payload
-- The payload a revision of a job had.
SELECT json_array(iif(j.revision = ?3, j.payload, (SELECT r.payload FROM revisions r WHERE r.job_id = ?2 AND r.revision = ?3)))
FROM jobs j WHERE j.tenant = ?1 AND j.id = ?2;

-- name: calls
-- Calls of webhooks of a tenant, newest first: of so many that are looked at, those that are meant; how many were looked at, and
-- the last of them.
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
SELECT json_array(
    (SELECT json_group_array(json_array(
                             json_array(x.id, x.job_id, x.tenant, x.nominal_ms, x.due_ms, x.state, x.attempt, x.dispatch, x.revision, x.cause,
                                        x.pool, x.handler, x.lane, x.created_ms, x.fired_ms, x.buffered, x.watch,
                                        json(iif(x.state < 2, coalesce(x.slots, '[]'), '[]')), t.due_ms, x.worker_id, x.started_ms,
                                        x.finished_ms, x.cancel, x.failure, x.progress, x.result, x.retry_of, x.moves),
                             d.died_ms, coalesce(d.archived, 0), d.retried_as, d.resolved_ms))
     FROM (SELECT * FROM matched ORDER BY id DESC) m CROSS JOIN executions x ON x.job_id = m.job_id AND x.id = m.id
          LEFT JOIN timeline t ON t.key = x.id LEFT JOIN dead d ON d.execution_id = x.id),
    (SELECT count(*) FROM looked), (SELECT min(id) FROM looked));

-- name: calls_of_task
-- As `calls`, of one job.
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
SELECT json_array(
    (SELECT json_group_array(json_array(
                             json_array(x.id, x.job_id, x.tenant, x.nominal_ms, x.due_ms, x.state, x.attempt, x.dispatch, x.revision, x.cause,
                                        x.pool, x.handler, x.lane, x.created_ms, x.fired_ms, x.buffered, x.watch,
                                        json(iif(x.state < 2, coalesce(x.slots, '[]'), '[]')), t.due_ms, x.worker_id, x.started_ms,
                                        x.finished_ms, x.cancel, x.failure, x.progress, x.result, x.retry_of, x.moves),
                             d.died_ms, coalesce(d.archived, 0), d.retried_as, d.resolved_ms))
     FROM (SELECT * FROM matched ORDER BY id DESC) m CROSS JOIN executions x ON x.job_id = m.job_id AND x.id = m.id
          LEFT JOIN timeline t ON t.key = x.id LEFT JOIN dead d ON d.execution_id = x.id),
    (SELECT count(*) FROM looked), (SELECT min(id) FROM looked));

-- name: known_calls
-- Some calls of webhooks, as `calls` has them.
SELECT json_group_array(json_array(
                        json_array(x.id, x.job_id, x.tenant, x.nominal_ms, x.due_ms, x.state, x.attempt, x.dispatch, x.revision, x.cause,
                                        x.pool, x.handler, x.lane, x.created_ms, x.fired_ms, x.buffered, x.watch,
                                        json(iif(x.state < 2, coalesce(x.slots, '[]'), '[]')), t.due_ms, x.worker_id, x.started_ms,
                                        x.finished_ms, x.cancel, x.failure, x.progress, x.result, x.retry_of, x.moves),
                        d.died_ms, coalesce(d.archived, 0), d.retried_as, d.resolved_ms))
FROM json_each(?2) e CROSS JOIN executions x ON x.id = e.value
     LEFT JOIN timeline t ON t.key = x.id LEFT JOIN dead d ON d.execution_id = x.id
WHERE x.tenant = ?1 AND x.pool = 'webhooks';

-- name: definitions
-- What jobs said at some revisions, or say now if these are not kept.
SELECT json_group_array(json_array(j.id, e.value ->> 1, json_array(j.name, j.state, j.pool, j.handler,
                                                                   iif(r.revision IS NULL, j.endpoint, r.spec ->> '$.target.endpoint'),
                                                                   coalesce(r.revision, j.revision),
                                                                   iif(r.revision IS NULL, j.payload, r.payload))))
FROM json_each(?2) e CROSS JOIN jobs j ON j.tenant = ?1 AND j.id = e.value ->> 0
     LEFT JOIN revisions r ON j.revision <> e.value ->> 1 AND r.job_id = j.id AND r.revision = e.value ->> 1;

-- name: dead
-- Dead letters, newest first.
SELECT json_group_array(json_array(
           json_array(x.id, x.job_id, x.tenant, x.nominal_ms, x.due_ms, x.state, x.attempt, x.dispatch, x.revision, x.cause,
                      x.pool, x.handler, x.lane, x.created_ms, x.fired_ms, x.buffered, x.watch, json(iif(x.state < 2, coalesce(x.slots, '[]'), '[]')), NULL, x.worker_id,
                      x.started_ms, x.finished_ms, x.cancel, x.failure, x.progress, x.result, x.retry_of, x.moves),
           d.died_ms, d.archived, d.retried_as, d.resolved_ms,
           (SELECT j.name FROM jobs j WHERE j.tenant = x.tenant AND j.id = x.job_id)))
FROM (SELECT * FROM dead
      WHERE tenant = ?1 AND archived = ?2 AND retried_as IS NULL
            AND (?3 IS NULL OR job_id = ?3) AND (?4 IS NULL OR pool = ?4) AND (?5 IS NULL OR handler = ?5)
            AND (?6 IS NULL OR died_ms >= ?6) AND (?7 IS NULL OR died_ms < ?7) AND (?8 IS NULL OR execution_id < ?8)
            AND (?10 = 0 OR EXISTS (SELECT 1 FROM jobs j
                                    WHERE j.tenant = ?1 AND j.id = dead.job_id AND j.endpoint IS NOT NULL
                                          AND (?11 IS NULL OR j.endpoint = ?11)))
            AND (?12 IS NULL OR EXISTS (SELECT 1 FROM executions x
                                        WHERE x.id = dead.execution_id
                                              AND instr(lower((x.failure ->> 'type') || ': ' || (x.failure ->> 'message')), lower(?12))))
      ORDER BY execution_id DESC LIMIT ?9) d CROSS JOIN executions x ON x.id = d.execution_id;

-- name: dead_letter
-- One dead letter.
SELECT died_ms, archived, retried_as FROM dead WHERE execution_id = ?2 AND tenant = ?1;

-- name: pools
-- Pools with what is known of them.
SELECT json_group_array(json_array(name, json(settings))) FROM pools WHERE ?1 IS NULL OR name = ?1;

-- name: handlers
-- Handlers of all pools.
SELECT json_group_array(json_array(pool, name, json(info))) FROM handlers;

-- name: handler
-- What is known of a handler.
SELECT info FROM handlers WHERE pool = ?1 AND name = ?2;

-- name: open_by_pool
-- Open executions that are handed out, by pool and state: of a tenant, or of all.
SELECT json_group_array(json_array(pool, state, n))
FROM (SELECT pool, state, count(*) AS n FROM executions
      WHERE state < 2 AND fired_ms IS NOT NULL AND (?1 IS NULL OR tenant = ?1) GROUP BY pool, state);

-- name: due_by_pool
-- Due rows of the timeline, by pool, of a tenant or of all; of the first hundred thousand.
SELECT json_group_array(json_array(pool, n))
FROM (SELECT pool, count(*) AS n
      FROM (SELECT pool, tenant FROM timeline WHERE due_ms <= ?1 ORDER BY due_ms, key LIMIT 100000)
      WHERE ?2 IS NULL OR tenant = ?2 GROUP BY pool);

-- name: put_pool
-- A pool's defaults.
INSERT INTO pools (name, settings) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET settings = excluded.settings;

-- name: workers
-- Workers, newest first.
SELECT json_group_array(json_array(id, host, pid, json(concurrency), started_ms, seen_ms, state, json(stuck), json(handlers)))
FROM (SELECT * FROM workers ORDER BY state = 'ALIVE' DESC, started_ms DESC LIMIT 1000);

-- name: running
-- What runs now.
SELECT json_group_array(json_array(id, job_id, tenant, nominal_ms, due_ms, state, attempt, dispatch, revision, cause, pool,
                                   handler, lane, created_ms, fired_ms, buffered, watch, json(iif(state < 2, coalesce(slots, '[]'), '[]')), NULL, worker_id, started_ms))
FROM (SELECT * FROM executions WHERE state = 1 LIMIT 10000);

-- name: tenant
-- A tenant's settings.
SELECT settings, updated_ms FROM tenants WHERE id = ?1;

-- name: pauses
-- What is held.
SELECT json_group_array(json_array(kind, name, since_ms, subject)) FROM pauses;

-- name: add_pause
-- Hold a tenant, a pool, or everything.
INSERT INTO pauses (kind, name, since_ms, subject) VALUES (?1, ?2, ?3, ?4) ON CONFLICT (kind, name) DO NOTHING;

-- name: remove_pause
-- No longer hold it.
DELETE FROM pauses WHERE kind = ?1 AND name = ?2;

-- name: tenants_after
-- Settings that were put after a number, in their order.
SELECT json_group_array(json_array(id, settings, seq)) FROM (SELECT * FROM tenants WHERE seq > ?1 ORDER BY seq);

-- name: usage
-- What a tenant used, day by day.
SELECT json_group_array(json_array(day, runs, succeeded, failed, run_ms, payload_bytes))
FROM (SELECT * FROM usage WHERE tenant = ?1 AND day BETWEEN ?2 AND ?3 ORDER BY day);

-- name: put_tenant
-- A tenant's settings, with the next number.
-- Differs: there is one writer, so no counter has to be locked.
INSERT INTO tenants (id, settings, updated_ms, seq) VALUES (?1, ?2, ?3, (SELECT coalesce(max(seq), 0) + 1 FROM tenants))
ON CONFLICT (id) DO UPDATE SET settings = excluded.settings, updated_ms = excluded.updated_ms, seq = excluded.seq;

-- name: count_in
-- What is handed out at present and counts against a new cap.
UPDATE executions SET slots = json_insert(coalesce(slots, '[]'), '$[#]', ?1)
WHERE state < 2 AND fired_ms IS NOT NULL AND (?2 = '' OR tenant = ?2) AND (?3 IS NULL OR pool = ?3)
      AND NOT EXISTS (SELECT 1 FROM json_each(executions.slots) s WHERE s.value = ?1);

-- name: uncap
-- A tenant, or a pool, has no caps.
UPDATE slots SET cap = NULL WHERE tenant = ?1 AND (?1 <> '' OR key = ?2);

-- name: cap
-- It has one.
INSERT INTO slots (tenant, key, used, cap) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (tenant, key) DO UPDATE SET used = used + excluded.used, cap = excluded.cap;

-- name: drop_free_slots
-- What nothing counts against.
DELETE FROM slots WHERE used <= 0 AND cap IS NULL;

-- name: jobs_waiting
-- How many jobs of a tenant wait for a time, or are paused; counted up to a number.
-- Differs: no index has the tenant, so this reads the timeline until it has counted enough.
SELECT count(*)
FROM (SELECT 1 FROM timeline t
      WHERE t.tenant = ?1 AND t.kind = 0
            AND (t.due_ms IS NOT NULL OR EXISTS (SELECT 1 FROM jobs j WHERE j.tenant = ?1 AND j.id = t.key AND j.state = 1))
      LIMIT ?2);

-- name: next_one_shot
-- When the next one-shot of a tenant is due, if that is among the next of the timeline.
SELECT t.due_ms
FROM (SELECT due_ms, key, kind, tenant FROM timeline WHERE due_ms IS NOT NULL ORDER BY due_ms, key LIMIT 10000) t
WHERE t.tenant = ?1 AND t.kind = 0
      AND EXISTS (SELECT 1 FROM jobs j WHERE j.tenant = ?1 AND j.id = t.key AND j.type IN ('ONE_TIME', 'DELAYED'))
LIMIT 1;

-- name: keys_taken
-- Which unique keys a tenant uses.
SELECT json_group_array(json_array(j.unique_key))
FROM json_each(?2) e CROSS JOIN jobs j ON j.tenant = ?1 AND j.unique_key = e.value;

-- name: capped_pools
-- Pools that have a cap.
SELECT json_group_array(json_array(substr(key, 6))) FROM slots WHERE tenant = '' AND cap IS NOT NULL;

-- name: slots
-- How full something is.
SELECT json_group_array(json_array(s.tenant, s.key, s.used, s.cap))
FROM json_each(?1) e CROSS JOIN slots s ON s.tenant = e.value ->> 0 AND s.key = e.value ->> 1;

-- name: due_before
-- How much of a tenant or a pool is due before a mark, whose it is, and how many rows were looked at.
SELECT count(*) FILTER (WHERE mine), count(DISTINCT CASE WHEN mine THEN tenant END), count(*)
FROM (SELECT (?4 IS NULL OR tenant = ?4) AND (?5 IS NULL OR pool = ?5) AS mine, tenant FROM timeline INDEXED BY timeline_due
      WHERE due_ms IS NOT NULL AND due_ms <= ?1 AND (due_ms, key) < (?1, ?2)
      ORDER BY due_ms, key LIMIT ?3);

-- name: due_before_with_key
-- As `due_before`, of those that share a concurrency key.
SELECT count(*) FILTER (WHERE mine), count(DISTINCT CASE WHEN mine THEN tenant END), count(*)
FROM (SELECT CASE WHEN t.tenant = ?4 AND t.staged = 0
                  THEN coalesce((SELECT j.spec ->> '$.concurrency.key' = ?5 FROM jobs j
                                 WHERE j.tenant = ?4
                                       AND j.id = coalesce((SELECT x.job_id FROM executions x WHERE t.kind = 1 AND x.id = t.key), t.key)),
                                0)
                  ELSE 0 END AS mine, t.tenant
      FROM (SELECT * FROM timeline INDEXED BY timeline_due
            WHERE due_ms IS NOT NULL AND due_ms <= ?1 AND (due_ms, key) < (?1, ?2)
            ORDER BY due_ms, key LIMIT ?3) t);

-- name: audit
-- Who did what, newest first: in a tenant, and in all of them ('').
SELECT json_group_array(json_array(id, json_array(tenant, at_ms, subject, action, target, json(detail))))
FROM (SELECT * FROM (SELECT * FROM audit
                     WHERE tenant = ?1 AND (?2 IS NULL OR target = ?2) AND (?3 IS NULL OR subject = ?3)
                           AND (?4 IS NULL OR id < ?4)
                     ORDER BY id DESC LIMIT ?5)
      UNION ALL
      SELECT * FROM (SELECT * FROM audit
                     WHERE tenant = '' AND (?2 IS NULL OR target = ?2) AND (?3 IS NULL OR subject = ?3)
                           AND (?4 IS NULL OR id < ?4)
                     ORDER BY id DESC LIMIT ?5)
      ORDER BY id DESC LIMIT ?5);

-- name: note_visit
-- An operator's read of a tenant, once a day.
INSERT INTO audit (tenant, at_ms, subject, action, target, detail) VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO NOTHING;

-- name: counts
-- Totals of all tenants. What is due: of the first hundred thousand.
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
-- Totals of a tenant, and the workers, which are everybody's. What is due: among the first hundred thousand of all tenants.
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
-- What recorders said of the last seconds.
SELECT json_group_array(json_array(recent)) FROM places WHERE recent <> '';

-- name: declared
-- Live jobs whose unique key begins with a prefix.
SELECT json_group_array(json_array(unique_key, id))
FROM jobs WHERE tenant = ?1 AND unique_key >= ?2 AND unique_key < ?2 || char(1114111) AND state <> 2;
