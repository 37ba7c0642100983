-- name: take_over
-- Raise the epoch of some partitions in an instance's name.
UPDATE partitions SET epoch = epoch + 1, owner = ?1 WHERE partition IN (SELECT value FROM json_each(?2));

-- name: owners
-- Who has some partitions.
SELECT json_group_array(json_array(partition, owner)) FROM partitions WHERE partition IN (SELECT value FROM json_each(?1));

-- name: epochs
-- The present epoch of every partition.
SELECT json_group_array(json_array(partition, epoch)) FROM partitions;

-- name: pauses
-- What is paused.
SELECT json_group_array(json_array(kind, name)) FROM pauses;

-- name: walk
-- Rows in order of time, from a mark on.
SELECT json_group_array(json_array(due_ms, key, kind, number, nominal_ms, partition, tenant, pool, lane, staged, planned))
FROM (SELECT * FROM timeline
      WHERE due_ms IS NOT NULL AND due_ms <= ?3 AND (due_ms, key) > (?1, ?2)
      ORDER BY due_ms, key LIMIT ?4);

-- name: walk_some
-- Rows of some partitions in order of time, from a mark on.
SELECT json_group_array(json_array(due_ms, key, kind, number, nominal_ms, partition, tenant, pool, lane, staged, planned))
FROM (SELECT * FROM timeline
      WHERE due_ms IS NOT NULL AND due_ms <= ?3 AND (due_ms, key) > (?1, ?2)
            AND partition IN (SELECT value FROM json_each(?5))
      ORDER BY due_ms, key LIMIT ?4);

-- name: walk_tenant
-- Rows of a tenant in order of time, beginning with a mark.
SELECT json_group_array(json_array(due_ms, key, kind, number, nominal_ms, partition, tenant, pool, lane, staged, planned))
FROM (SELECT * FROM timeline
      WHERE due_ms IS NOT NULL AND due_ms <= ?3 AND (due_ms, key) >= (?1, ?2) AND tenant = ?6
            AND partition IN (SELECT value FROM json_each(?5))
      ORDER BY due_ms, key LIMIT ?4);

-- name: present
-- The rows of the timeline that some keys have now.
SELECT json_group_array(json_array(t.due_ms, t.key, t.kind, t.number, t.nominal_ms, t.partition, t.tenant, t.pool, t.lane,
                                   t.staged, t.planned, t.runs_left))
FROM json_each(?1) e CROSS JOIN timeline t ON t.key = e.value;

-- name: plans
-- The jobs behind fires that need a plan.
SELECT json_group_array(json_array(
           json_array(j.id, j.tenant, j.revision, j.state, json(j.spec), j.anchor_ms, NULL, j.created_ms, j.updated_ms),
           t.runs_left))
FROM json_each(?1) e CROSS JOIN jobs j ON j.tenant = e.value ->> 0 AND j.id = e.value ->> 1
     CROSS JOIN timeline t ON t.key = j.id;

-- name: fire_simple
-- One-shots that nothing can stand in the way of, all at once. The row must be the one the entry names.
INSERT INTO executions (job_id, id, tenant, nominal_ms, due_ms, state, attempt, dispatch, revision, cause, pool, handler, lane,
                        watch, created_ms, fired_ms, slots, moves)
SELECT j.id, e.value ->> 0, j.tenant, t.nominal_ms, t.due_ms, 0, 1, 1, j.revision, 0, j.pool, j.handler, j.lane, 0, ?2, ?2,
       e.value ->> 4, ?3
FROM json_each(?1) e CROSS JOIN timeline t ON t.key = e.value ->> 1 CROSS JOIN jobs j ON j.tenant = t.tenant AND j.id = t.key
WHERE t.number = e.value ->> 2 AND t.nominal_ms = e.value ->> 3 AND t.due_ms <= ?4
ON CONFLICT DO NOTHING;

-- name: simple_dispatches
-- What workers need to run one-shots that are being fired, in the order of the fields of a Dispatch.
SELECT json_group_array(json_array(e.value ->> 0, 1, t.key, t.tenant, t.pool, j.handler, t.due_ms, t.nominal_ms, 1, ?2, j.revision,
                                   j.timeout_sec, j.heartbeat_sec, j.deadline_sec, j.payload, NULL, j.trace, j.name, NULL, NULL,
                                   j.lane, j.endpoint))
FROM json_each(?1) e CROSS JOIN timeline t ON t.key = e.value ->> 1 CROSS JOIN jobs j ON j.tenant = t.tenant AND j.id = t.key;

-- name: pool_timeouts
-- Pools that say how long their handlers may run.
SELECT json_group_array(json_array(name, settings ->> '$.timeoutSec')) FROM pools WHERE settings ->> '$.timeoutSec' IS NOT NULL;

-- name: jobs_of_executions
-- Which jobs some executions belong to, and which slots they have kept.
SELECT json_group_array(json_array(x.id, x.tenant, x.job_id, json(coalesce(x.slots, '[]')))) FROM json_each(?1) e CROSS JOIN executions x ON x.id = e.value;

-- name: dispatches
-- What workers need to run these executions, in the order of the fields of a Dispatch. A start deadline counts from the time of the
-- occurrence, however often it waited since, and is met once it has started.
SELECT json_group_array(json_array(x.id, x.dispatch, x.job_id, x.tenant, x.pool, x.handler, e.value ->> 1, x.nominal_ms,
                                   x.attempt, x.fired_ms, x.revision,
                                   iif(r.revision IS NULL, j.timeout_sec, r.spec ->> '$.timeoutSec'),
                                   iif(r.revision IS NULL, j.heartbeat_sec, r.spec ->> '$.heartbeatTimeoutSec'),
                                   iif(x.started_ms IS NULL, iif(r.revision IS NULL, j.deadline_sec, r.spec ->> '$.startDeadlineSec')
                                                             + (x.due_ms - (e.value ->> 1)) / 1000.0, NULL),
                                   iif(r.revision IS NULL, j.payload, r.payload),
                                   x.progress, j.trace, j.name, NULL, NULL, x.lane,
                                   iif(r.revision IS NULL, j.endpoint, r.spec ->> '$.target.endpoint')))
FROM json_each(?1) e CROSS JOIN executions x ON x.id = e.value ->> 0
     CROSS JOIN jobs j ON j.tenant = x.tenant AND j.id = x.job_id
     LEFT JOIN revisions r ON j.revision <> x.revision AND r.job_id = x.job_id AND r.revision = x.revision
WHERE x.state = 0 AND x.fired_ms = ?2;

-- name: add_batch
-- Note what was fired together, until the bus has acknowledged it.
INSERT INTO batches (owner, fired_ms, members) VALUES (?1, ?2, ?3);

-- name: seal
-- The bus has acknowledged these batches.
DELETE FROM batches WHERE id IN (SELECT value FROM json_each(?1));

-- name: unsealed
-- Batches that were fired and never acknowledged, after an id.
SELECT json_group_array(json_array(id, owner, fired_ms))
FROM (SELECT * FROM batches WHERE fired_ms < ?1 AND id > ?3 ORDER BY id LIMIT ?2);

-- name: batch_members
-- What a batch consists of: [execution, due] of each.
SELECT members FROM batches WHERE id = ?1;

-- name: existing
-- Which of some executions exist.
SELECT json_group_array(json_array(x.id)) FROM json_each(?1) e CROSS JOIN executions x ON x.id = e.value;

-- name: orphans
-- Handed out long ago, or stamped further ahead than a clock that was never set can be; and no worker ever said a word about it.
SELECT json_group_array(json_array(id, job_id, tenant, nominal_ms, due_ms, state, attempt, dispatch, revision, cause, pool,
                                   handler, lane, created_ms, fired_ms, buffered, watch, json(iif(state < 2, coalesce(slots, '[]'), '[]')), NULL, worker_id, started_ms,
                                   finished_ms, cancel, failure, NULL, NULL, retry_of))
FROM (SELECT * FROM executions
      WHERE state < 2 AND state = 0 AND worker_id IS NULL AND (fired_ms < ?1 OR fired_ms > ?3)
      LIMIT ?2);

-- name: count_due
-- Due rows of each pool, and the oldest; of the first hundred thousand, for there may be very many, and this is asked often.
SELECT json_group_array(json_array(pool, n, oldest))
FROM (SELECT pool, count(*) AS n, min(due_ms) AS oldest
      FROM (SELECT pool, due_ms FROM timeline WHERE due_ms <= ?1 ORDER BY due_ms, key LIMIT 100000) GROUP BY pool);

-- name: zone_data
-- The version of the time-zone data that schedules were planned with.
SELECT value FROM meta WHERE key = 'zone_data';

-- name: set_zone_data
-- Note the version of the time-zone data.
INSERT INTO meta (key, value) VALUES ('zone_data', ?1) ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: forget_zone_data
-- Schedules are to be planned once more.
DELETE FROM meta WHERE key = 'zone_data';

-- name: replan_mark
-- How far a recomputation of schedules has come.
SELECT value FROM meta WHERE key = 'replan_mark';

-- name: set_replan_mark
-- Note how far a recomputation of schedules has come.
INSERT INTO meta (key, value) VALUES ('replan_mark', ?1) ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: zoned_fires
-- Fires of jobs with a schedule, by key.
SELECT json_group_array(json_array(t.key, json_array(
           json_array(j.id, j.tenant, j.revision, j.state, json(j.spec), j.anchor_ms, NULL, j.created_ms, j.updated_ms),
           json_array(t.nominal_ms, t.due_ms, t.runs_left))))
FROM (SELECT * FROM timeline WHERE key > ?1 AND kind = 0 AND planned = 1 ORDER BY key LIMIT ?2) t
     CROSS JOIN jobs j ON j.tenant = t.tenant AND j.id = t.key;
