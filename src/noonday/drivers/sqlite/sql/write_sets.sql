-- name: add_executions
-- Insert new executions, made from their jobs. Those that exist are left alone.
INSERT INTO executions (id, job_id, tenant, nominal_ms, due_ms, state, attempt, dispatch, revision, cause, pool, handler,
                        lane, watch, created_ms, fired_ms, buffered, retry_of, slots, transitions)
SELECT e.value ->> 'id', j.id, j.tenant, e.value ->> 'nominal_ms', e.value ->> 'due_ms', 0, 1, 1, j.revision, e.value ->> 'cause',
       j.pool, j.handler, j.lane, j.watch, ?2, e.value ->> 'fired_ms', e.value ->> 'buffered', e.value ->> 'retry_of',
       e.value ->> 'slots', ?3
FROM json_each(?1) e CROSS JOIN jobs j ON j.tenant = e.value ->> 'tenant' AND j.id = e.value ->> 'job_id'
WHERE true
ON CONFLICT DO NOTHING;

-- name: existing
-- Return which of some executions exist.
SELECT x.id FROM json_each(?1) e CROSS JOIN executions x ON x.id = e.value;

-- name: set_executions
-- Update settled executions and append their transitions.
UPDATE executions
SET state = e.value ->> 'state', attempt = e.value ->> 'attempt', dispatch = e.value ->> 'dispatch', revision = e.value ->> 'revision',
    fired_ms = e.value ->> 'fired_ms', buffered = e.value ->> 'buffered', worker_id = e.value ->> 'worker_id',
    started_ms = e.value ->> 'started_ms', finished_ms = e.value ->> 'finished_ms', revocation = e.value ->> 'revocation',
    failure = e.value ->> 'failure', progress = coalesce(e.value ->> 'progress', progress), result = e.value ->> 'result',
    slots = nullif(e.value ->> 'slots', '[]'), pool = e.value ->> 'pool', handler = e.value ->> 'handler', lane = e.value ->> 'lane',
    watch = e.value ->> 'watch', transitions = transitions || (e.value ->> 'transitions')
FROM json_each(?1) e
WHERE executions.id = e.value ->> 'id';

-- name: put_timeline
-- Insert or update timeline rows.
INSERT INTO timeline (due_ms, key, kind, number, nominal_ms, partition, tenant, pool, lane, early, recurring, runs_left,
                      ordering_key)
SELECT e.value ->> 'due_ms', e.value ->> 'key', e.value ->> 'kind', e.value ->> 'number', e.value ->> 'nominal_ms',
       e.value ->> 'partition', e.value ->> 'tenant', e.value ->> 'pool', e.value ->> 'lane', e.value ->> 'early',
       e.value ->> 'recurring', e.value ->> 'runs_left', e.value ->> 'ordering_key'
FROM json_each(?1) e
WHERE true
ON CONFLICT (key) DO UPDATE
SET due_ms = excluded.due_ms, kind = excluded.kind, number = excluded.number, nominal_ms = excluded.nominal_ms,
    pool = excluded.pool, lane = excluded.lane, early = excluded.early, recurring = excluded.recurring,
    runs_left = excluded.runs_left, ordering_key = excluded.ordering_key;

-- name: return_runs
-- Give runs back to jobs with a limited number of runs.
UPDATE timeline SET runs_left = runs_left + (e.value ->> 'count') FROM json_each(?1) e
WHERE timeline.key = e.value ->> 'job_id' AND runs_left IS NOT NULL;

-- name: fires_of_jobs
-- Return the fire rows of some jobs.
SELECT t.key, t.nominal_ms, t.due_ms, t.runs_left
FROM json_each(?1) e CROSS JOIN timeline t ON t.key = e.value ->> 'id';

-- name: drop_timeline
-- Delete timeline rows that were fired or have nothing left to wait for.
DELETE FROM timeline WHERE key IN (SELECT value FROM json_each(?1));

-- name: add_decisions
-- Insert decisions about occurrences that did not fire.
INSERT INTO decisions (job_id, from_ms, to_ms, count, outcome, reason, decided_ms)
SELECT e.value ->> 'job_id', e.value ->> 'from_ms', e.value ->> 'to_ms', e.value ->> 'count', e.value ->> 'outcome',
       e.value ->> 'reason', ?2
FROM json_each(?1) e
WHERE true
ON CONFLICT DO NOTHING;

-- name: add_dead
-- Insert dead letters for executions that used up their attempts.
INSERT INTO dead (execution_id, tenant, job_id, pool, handler, died_ms)
SELECT x.id, x.tenant, x.job_id, x.pool, x.handler, ?2
FROM json_each(?1) e CROSS JOIN executions x ON x.id = e.value
WHERE true
ON CONFLICT (execution_id) DO NOTHING;

-- name: add_incidents
-- Insert incidents.
INSERT INTO incidents (kind, tenant, execution_id, job_id, message, at_ms)
SELECT e.value ->> 'kind', e.value ->> 'tenant', e.value ->> 'execution_id', e.value ->> 'job_id', e.value ->> 'message', ?2
FROM json_each(?1) e;

-- name: add_children
-- Insert the child jobs of executions, which are created later.
INSERT INTO child_jobs (tenant, execution_id, dispatch, job_id, jobs, children)
SELECT e.value ->> 'tenant', e.value ->> 'execution_id', e.value ->> 'dispatch', e.value ->> 'job_id', e.value ->> 'jobs',
       e.value ->> 'children'
FROM json_each(?1) e WHERE true
ON CONFLICT DO NOTHING;

-- name: turns_of_jobs
-- Return the first open executions of some jobs that do not allow overlap, up to a limit of each, and the first buffered one.
SELECT json_group_array(json(json))
FROM (SELECT x.json FROM json_each(?1) e CROSS JOIN execution_rows x ON x.job_id = e.value AND x.id IN
          (SELECT * FROM (SELECT id FROM executions INDEXED BY executions_turns
                          WHERE job_id = e.value AND buffered = 0 AND state < 2 AND watch & 1 = 1
                          ORDER BY id LIMIT ?2)
           UNION ALL
           SELECT * FROM (SELECT id FROM executions INDEXED BY executions_turns
                          WHERE job_id = e.value AND buffered = 1 AND state < 2 AND watch & 1 = 1
                          ORDER BY id LIMIT 1))
      ORDER BY x.id);

-- name: change_slots
-- Change how many slots are in use.
INSERT INTO slots (tenant, key, used)
SELECT e.value ->> 'tenant', e.value ->> 'key', e.value ->> 'more' FROM json_each(?1) e
WHERE true
ON CONFLICT (tenant, key) DO UPDATE SET used = max(0, used + excluded.used);

-- name: drop_free_slots
-- Delete unused slots without a cap. Keys come and go, so only those in use are counted.
DELETE FROM slots WHERE used <= 0 AND cap IS NULL;

-- name: caps
-- Return the use and the cap of those slots that have a cap.
SELECT s.tenant, s.key, s.used, s.cap
FROM json_each(?1) e CROSS JOIN slots s ON s.tenant = e.value ->> 'tenant' AND s.key = e.value ->> 'key'
WHERE s.cap IS NOT NULL;

-- name: slots_of
-- Return the slots of executions that just ended, by tenant. Their rows keep the names, which no longer count.
SELECT x.tenant, x.slots, count(*) AS count
FROM json_each(?1) e CROSS JOIN executions x ON x.id = e.value
WHERE x.slots IS NOT NULL
GROUP BY x.tenant, x.slots;

-- name: slots
-- Return how many of some slots are in use.
SELECT s.tenant, s.key, s.used
FROM json_each(?1) e CROSS JOIN slots s ON s.tenant = e.value ->> 'tenant' AND s.key = e.value ->> 'key';

-- name: limits_of_jobs
-- Return the overlap policy and concurrency limits of some jobs.
SELECT j.id, j.spec ->> '$.overlap' AS overlap, j.spec ->> '$.concurrency.key' AS key, j.spec ->> '$.concurrency.limit' AS "limit",
       coalesce(j.spec ->> '$.concurrency.ordered', 0) AS ordered
FROM json_each(?1) e CROSS JOIN jobs j ON j.tenant = e.value ->> 'tenant' AND j.id = e.value ->> 'id';

-- name: heads
-- Return the first fire of each of some ordering keys.
SELECT tenant, ordering_key, head
FROM (SELECT e.value ->> 'tenant' AS tenant, e.value ->> 'key' AS ordering_key,
             (SELECT t.key FROM timeline t INDEXED BY timeline_ordering_key
              WHERE t.tenant = e.value ->> 'tenant' AND t.ordering_key = e.value ->> 'key' AND t.due_ms IS NOT NULL
              ORDER BY t.due_ms, t.key LIMIT 1) AS head
      FROM json_each(?1) e)
WHERE head IS NOT NULL;

-- name: mark_dispatched
-- Mark executions as dispatched whose dispatch rows were taken off the timeline.
UPDATE executions SET fired_ms = ?2, slots = e.value ->> 'slots'
FROM json_each(?1) e
WHERE executions.id = e.value ->> 'id' AND state = 0;

-- name: revoke
-- Set the revocations of executions.
UPDATE executions SET revocation = e.value ->> 'reason' FROM json_each(?1) e WHERE executions.id = e.value ->> 'id';

-- name: policies
-- Return the sources of the retry policies of some executions: the job as it was fired, its handler, its pool.
SELECT x.id AS execution_id,
       json_object('job', json(iif(j.revision = x.revision, j.spec,
                                   (SELECT spec FROM revisions r WHERE r.job_id = x.job_id AND r.revision = x.revision))
                               -> '$.retryPolicy'),
                   'handler', (SELECT json(h.info) FROM handlers h WHERE h.pool = x.pool AND h.name = x.handler),
                   'pool', (SELECT json(p.settings) FROM pools p WHERE p.name = x.pool)) AS sources
FROM json_each(?1) e CROSS JOIN executions x ON x.id = e.value
     CROSS JOIN jobs j ON j.tenant = x.tenant AND j.id = x.job_id;

-- name: paused
-- Return which of some jobs are paused.
SELECT j.id
FROM json_each(?1) e CROSS JOIN jobs j ON j.tenant = e.value ->> 'tenant' AND j.id = e.value ->> 'id' WHERE j.state = 1;

-- name: jobs
-- Return some jobs without their payloads.
SELECT json_group_array(json(j.json))
FROM json_each(?1) e CROSS JOIN job_rows j ON j.tenant = e.value ->> 'tenant' AND j.id = e.value ->> 'id';
