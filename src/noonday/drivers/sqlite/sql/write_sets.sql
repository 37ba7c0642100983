-- name: add_executions
-- Insert new executions, made from their jobs. Those that exist are left alone.
INSERT INTO executions (id, job_id, tenant, nominal_ms, due_ms, state, attempt, dispatch, revision, cause, pool, handler,
                        lane, watch, created_ms, fired_ms, buffered, retry_of, slots, moves)
SELECT e.value ->> 0, j.id, j.tenant, e.value ->> 3, e.value ->> 4, 0, 1, 1, j.revision, e.value ->> 5, j.pool, j.handler,
       j.lane, j.watch, ?2, e.value ->> 6, e.value ->> 7, e.value ->> 8, e.value ->> 9, ?3
FROM json_each(?1) e CROSS JOIN jobs j ON j.tenant = e.value ->> 1 AND j.id = e.value ->> 2
WHERE true
ON CONFLICT DO NOTHING;

-- name: existing
-- Return which of some executions exist.
SELECT json_group_array(json_array(x.id)) FROM json_each(?1) e CROSS JOIN executions x ON x.id = e.value;

-- name: set_executions
-- Update settled executions and append their transitions.
UPDATE executions
SET state = e.value ->> 1, attempt = e.value ->> 2, dispatch = e.value ->> 3, revision = e.value ->> 4,
    fired_ms = e.value ->> 5, buffered = e.value ->> 6, worker_id = e.value ->> 7, started_ms = e.value ->> 8,
    finished_ms = e.value ->> 9, cancel = e.value ->> 10, failure = e.value ->> 11,
    progress = coalesce(e.value ->> 12, progress), result = e.value ->> 13, slots = e.value ->> 14, pool = e.value ->> 15, handler = e.value ->> 16,
    lane = e.value ->> 17, watch = e.value ->> 18, moves = moves || (e.value ->> 19)
FROM json_each(?1) e
WHERE executions.id = e.value ->> 0;

-- name: put_timeline
-- Insert or update timeline rows.
INSERT INTO timeline (due_ms, key, kind, number, nominal_ms, partition, tenant, pool, lane, staged, planned, runs_left,
                      line)
SELECT e.value ->> 0, e.value ->> 1, e.value ->> 2, e.value ->> 3, e.value ->> 4, e.value ->> 5, e.value ->> 6,
       e.value ->> 7, e.value ->> 8, e.value ->> 9, e.value ->> 10, e.value ->> 11, e.value ->> 12
FROM json_each(?1) e
WHERE true
ON CONFLICT (key) DO UPDATE
SET due_ms = excluded.due_ms, kind = excluded.kind, number = excluded.number, nominal_ms = excluded.nominal_ms,
    pool = excluded.pool, lane = excluded.lane, staged = excluded.staged, planned = excluded.planned,
    runs_left = excluded.runs_left, line = excluded.line;

-- name: return_runs
-- Give runs back to jobs with a limited number of runs.
UPDATE timeline SET runs_left = runs_left + (e.value ->> 1) FROM json_each(?1) e
WHERE timeline.key = e.value ->> 0 AND runs_left IS NOT NULL;

-- name: fires_of_jobs
-- Return the fire rows of some jobs.
SELECT json_group_array(json_array(t.key, json_array(t.nominal_ms, t.due_ms, t.runs_left)))
FROM json_each(?1) e CROSS JOIN timeline t ON t.key = e.value ->> 1;

-- name: drop_timeline
-- Delete timeline rows that were fired or have nothing left to wait for.
DELETE FROM timeline WHERE key IN (SELECT value FROM json_each(?1));

-- name: add_decisions
-- Insert decisions about occurrences that did not fire.
INSERT INTO decisions (job_id, from_ms, to_ms, count, outcome, reason, decided_ms)
SELECT e.value ->> 0, e.value ->> 1, e.value ->> 2, e.value ->> 3, e.value ->> 4, e.value ->> 5, ?2
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
SELECT e.value ->> 0, e.value ->> 1, e.value ->> 2, e.value ->> 3, e.value ->> 4, ?2 FROM json_each(?1) e;

-- name: turns_of_jobs
-- Return the first open executions of some jobs that do not allow overlap, up to a limit of each, and the first buffered one.
SELECT json_group_array(json_array(id, job_id, tenant, nominal_ms, due_ms, state, attempt, dispatch, revision, cause, pool,
                                   handler, lane, created_ms, fired_ms, buffered, watch, json(iif(state < 2, coalesce(slots, '[]'), '[]')), NULL, worker_id, started_ms,
                                   finished_ms, cancel))
FROM (SELECT x.* FROM json_each(?1) e CROSS JOIN executions x ON x.job_id = e.value AND x.id IN
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
SELECT e.value ->> 0, e.value ->> 1, e.value ->> 2 FROM json_each(?1) e
WHERE true
ON CONFLICT (tenant, key) DO UPDATE SET used = max(0, used + excluded.used);

-- name: drop_free_slots
-- Delete unused slots without a cap. Keys come and go, so only those in use are counted.
DELETE FROM slots WHERE used <= 0 AND cap IS NULL;

-- name: caps
-- Return the use and the cap of those slots that have a cap.
SELECT json_group_array(json_array(s.tenant, s.key, s.used, s.cap))
FROM json_each(?1) e CROSS JOIN slots s ON s.tenant = e.value ->> 0 AND s.key = e.value ->> 1
WHERE s.cap IS NOT NULL;

-- name: slots_of
-- Return the slots of executions that just ended, by tenant. Their rows keep the names, which no longer count.
SELECT json_group_array(json_array(tenant, json(slots), n))
FROM (SELECT x.tenant, x.slots, count(*) AS n FROM json_each(?1) e CROSS JOIN executions x ON x.id = e.value
      WHERE x.slots IS NOT NULL
      GROUP BY x.tenant, x.slots);

-- name: slots
-- Return how many of some slots are in use.
SELECT json_group_array(json_array(s.tenant, s.key, s.used))
FROM json_each(?1) e CROSS JOIN slots s ON s.tenant = e.value ->> 0 AND s.key = e.value ->> 1;

-- name: limits_of_jobs
-- Return the overlap policy and concurrency limits of some jobs.
SELECT json_group_array(json_array(j.id, json_array(j.spec ->> '$.overlap', j.spec ->> '$.concurrency.key',
                                                    j.spec ->> '$.concurrency.limit',
                                                    json(iif(j.spec ->> '$.concurrency.ordered', 'true', 'false')))))
FROM json_each(?1) e CROSS JOIN jobs j ON j.tenant = e.value ->> 0 AND j.id = e.value ->> 1;

-- name: heads
-- Return the first fire of each of some ordering keys.
SELECT json_group_array(json_array(tenant, line, head))
FROM (SELECT e.value ->> 0 AS tenant, e.value ->> 1 AS line,
             (SELECT t.key FROM timeline t INDEXED BY timeline_line
              WHERE t.tenant = e.value ->> 0 AND t.line = e.value ->> 1 AND t.due_ms IS NOT NULL
              ORDER BY t.due_ms, t.key LIMIT 1) AS head
      FROM json_each(?1) e)
WHERE head IS NOT NULL;

-- name: mark_dispatched
-- Mark executions as dispatched whose dispatch rows were taken off the timeline.
UPDATE executions SET fired_ms = ?2, slots = e.value ->> 1
FROM json_each(?1) e
WHERE executions.id = e.value ->> 0 AND state = 0;

-- name: revoke
-- Set the revocations of executions.
UPDATE executions SET cancel = e.value ->> 1 FROM json_each(?1) e WHERE executions.id = e.value ->> 0;

-- name: policies
-- Return the sources of the retry policies of some executions: the job as it was fired, its handler, its pool.
SELECT json_group_array(json_array(x.id, json_array(
           json(iif(j.revision = x.revision, j.spec,
                    (SELECT spec FROM revisions r WHERE r.job_id = x.job_id AND r.revision = x.revision)) -> '$.retryPolicy'),
           (SELECT json(h.info) FROM handlers h WHERE h.pool = x.pool AND h.name = x.handler),
           (SELECT json(p.settings) FROM pools p WHERE p.name = x.pool))))
FROM json_each(?1) e CROSS JOIN executions x ON x.id = e.value
     CROSS JOIN jobs j ON j.tenant = x.tenant AND j.id = x.job_id;

-- name: paused
-- Return which of some jobs are paused.
SELECT json_group_array(json_array(j.id))
FROM json_each(?1) e CROSS JOIN jobs j ON j.tenant = e.value ->> 0 AND j.id = e.value ->> 1 WHERE j.state = 1;

-- name: jobs
-- Return some jobs without their payloads.
SELECT json_group_array(json_array(j.id, j.tenant, j.revision, j.state, json(j.spec), j.anchor_ms, NULL, j.created_ms,
                                   j.updated_ms))
FROM json_each(?1) e CROSS JOIN jobs j ON j.tenant = e.value ->> 0 AND j.id = e.value ->> 1;
