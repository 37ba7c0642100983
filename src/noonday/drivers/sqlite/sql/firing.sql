-- name: take_over
-- Raise the epoch of some partitions and set their owner.
UPDATE partitions SET epoch = epoch + 1, owner = ?1 WHERE partition IN (SELECT value FROM json_each(?2));

-- name: owners
-- Return the owners of some partitions.
SELECT json_group_array(json_array(partition, owner)) FROM partitions WHERE partition IN (SELECT value FROM json_each(?1));

-- name: epochs
-- Return the epoch of every partition.
SELECT json_group_array(json_array(partition, epoch)) FROM partitions;

-- name: pauses
-- Return the kind and name of every pause.
SELECT json_group_array(json_array(kind, name)) FROM pauses;

-- name: walk_all
-- Return a page of timeline rows of all partitions after a mark, in due order.
SELECT json_group_array(json_array(due_ms, key, kind, number, nominal_ms, partition, tenant, pool, lane, staged, planned))
FROM (SELECT * FROM timeline
      WHERE due_ms IS NOT NULL AND due_ms <= ?3 AND (due_ms, key) > (?1, ?2)
      ORDER BY due_ms, key LIMIT ?4);

-- name: walk_partitions
-- Return a page of timeline rows of some partitions after a mark, in due order.
SELECT json_group_array(json_array(due_ms, key, kind, number, nominal_ms, partition, tenant, pool, lane, staged, planned))
FROM (SELECT * FROM timeline
      WHERE due_ms IS NOT NULL AND due_ms <= ?3 AND (due_ms, key) > (?1, ?2)
            AND partition IN (SELECT value FROM json_each(?5))
      ORDER BY due_ms, key LIMIT ?4);

-- name: walk_tenant
-- Return a page of timeline rows of a tenant in due order, from a mark on, inclusive.
SELECT json_group_array(json_array(due_ms, key, kind, number, nominal_ms, partition, tenant, pool, lane, staged, planned))
FROM (SELECT * FROM timeline
      WHERE due_ms IS NOT NULL AND due_ms <= ?3 AND (due_ms, key) >= (?1, ?2) AND tenant = ?6
            AND partition IN (SELECT value FROM json_each(?5))
      ORDER BY due_ms, key LIMIT ?4);

-- name: present
-- Return the current timeline rows of some keys.
SELECT json_group_array(json_array(t.due_ms, t.key, t.kind, t.number, t.nominal_ms, t.partition, t.tenant, t.pool, t.lane,
                                   t.staged, t.planned, t.runs_left))
FROM json_each(?1) e CROSS JOIN timeline t ON t.key = e.value;

-- name: plans
-- Return the jobs of recurring fires, with their remaining runs.
SELECT json_group_array(json_array(
           json_array(j.id, j.tenant, j.revision, j.state, json(j.spec), j.anchor_ms, NULL, j.created_ms, j.updated_ms),
           t.runs_left))
FROM json_each(?1) e CROSS JOIN jobs j ON j.tenant = e.value ->> 0 AND j.id = e.value ->> 1
     CROSS JOIN timeline t ON t.key = j.id;

-- name: fire_simple
-- Fire simple one-shots, all in one statement. Skips entries whose timeline row has changed or is not due.
INSERT INTO executions (job_id, id, tenant, nominal_ms, due_ms, state, attempt, dispatch, revision, cause, pool, handler, lane,
                        watch, created_ms, fired_ms, slots, moves)
SELECT j.id, e.value ->> 0, j.tenant, t.nominal_ms, t.due_ms, 0, 1, 1, j.revision, 0, j.pool, j.handler, j.lane, 0, ?2, ?2,
       e.value ->> 4, ?3
FROM json_each(?1) e CROSS JOIN timeline t ON t.key = e.value ->> 1 CROSS JOIN jobs j ON j.tenant = t.tenant AND j.id = t.key
WHERE t.number = e.value ->> 2 AND t.nominal_ms = e.value ->> 3 AND t.due_ms <= ?4
ON CONFLICT DO NOTHING;

-- name: simple_dispatches
-- Return the fields of a Dispatch, in order, for each simple one-shot that is being fired.
SELECT json_group_array(json_array(e.value ->> 0, 1, t.key, t.tenant, t.pool, j.handler, t.due_ms, t.nominal_ms, 1, ?2, j.revision,
                                   j.timeout_sec, j.heartbeat_sec, j.deadline_sec, j.payload, NULL, j.trace, j.name, NULL, NULL,
                                   j.lane, j.endpoint))
FROM json_each(?1) e CROSS JOIN timeline t ON t.key = e.value ->> 1 CROSS JOIN jobs j ON j.tenant = t.tenant AND j.id = t.key;

-- name: pool_timeouts
-- Return the pools that set a timeout for their handlers, and the timeout in seconds.
SELECT json_group_array(json_array(name, settings ->> '$.timeoutSec')) FROM pools WHERE settings ->> '$.timeoutSec' IS NOT NULL;

-- name: jobs_of_executions
-- Return the tenants, jobs and kept slots of some executions.
SELECT json_group_array(json_array(x.id, x.tenant, x.job_id, json(coalesce(x.slots, '[]')))) FROM json_each(?1) e CROSS JOIN executions x ON x.id = e.value;

-- name: dispatches
-- Return the fields of a Dispatch, in order, for each execution of a batch that is still PENDING. A start deadline counts from
-- the due time of the occurrence, however often the execution waited since. It is met once the execution has started.
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
-- Insert a fired batch, to be kept until the bus has acknowledged it.
INSERT INTO batches (owner, fired_ms, members) VALUES (?1, ?2, ?3);

-- name: seal
-- Delete batches that the bus has acknowledged.
DELETE FROM batches WHERE id IN (SELECT value FROM json_each(?1));

-- name: unsealed
-- Return batches after an id that were fired before an instant and are not acknowledged.
SELECT json_group_array(json_array(id, owner, fired_ms))
FROM (SELECT * FROM batches WHERE fired_ms < ?1 AND id > ?3 ORDER BY id LIMIT ?2);

-- name: batch_members
-- Return the members of a batch as pairs of execution and due time.
SELECT members FROM batches WHERE id = ?1;

-- name: existing
-- Return which of some executions exist.
SELECT json_group_array(json_array(x.id)) FROM json_each(?1) e CROSS JOIN executions x ON x.id = e.value;

-- name: orphans
-- Return executions that were dispatched before an instant and that no worker ever reported. This includes those with a fire
-- time so far ahead that a clock must have been set back.
SELECT json_group_array(json_array(id, job_id, tenant, nominal_ms, due_ms, state, attempt, dispatch, revision, cause, pool,
                                   handler, lane, created_ms, fired_ms, buffered, watch, json(iif(state < 2, coalesce(slots, '[]'), '[]')), NULL, worker_id, started_ms,
                                   finished_ms, cancel, failure, NULL, NULL, retry_of))
FROM (SELECT * FROM executions
      WHERE state < 2 AND state = 0 AND worker_id IS NULL AND (fired_ms < ?1 OR fired_ms > ?3)
      LIMIT ?2);

-- name: count_due
-- Return the number of due rows and the oldest due time by pool. This runs often, so it counts the first 100,000 due rows
-- only.
SELECT json_group_array(json_array(pool, n, oldest))
FROM (SELECT pool, count(*) AS n, min(due_ms) AS oldest
      FROM (SELECT pool, due_ms FROM timeline WHERE due_ms <= ?1 ORDER BY due_ms, key LIMIT 100000) GROUP BY pool);

-- name: zone_data
-- Return the version of the time-zone data that schedules were planned with.
SELECT value FROM meta WHERE key = 'zone_data';

-- name: set_zone_data
-- Set the version of the time-zone data that schedules were planned with.
INSERT INTO meta (key, value) VALUES ('zone_data', ?1) ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: forget_zone_data
-- Delete the version of the time-zone data, so that schedules are planned again.
DELETE FROM meta WHERE key = 'zone_data';

-- name: replan_mark
-- Return how far replanning has come.
SELECT value FROM meta WHERE key = 'replan_mark';

-- name: set_replan_mark
-- Set how far replanning has come.
INSERT INTO meta (key, value) VALUES ('replan_mark', ?1) ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: zoned_fires
-- Return a page of recurring fires with their jobs, in key order.
SELECT json_group_array(json_array(t.key, json_array(
           json_array(j.id, j.tenant, j.revision, j.state, json(j.spec), j.anchor_ms, NULL, j.created_ms, j.updated_ms),
           json_array(t.nominal_ms, t.due_ms, t.runs_left))))
FROM (SELECT * FROM timeline WHERE key > ?1 AND kind = 0 AND planned = 1 ORDER BY key LIMIT ?2) t
     CROSS JOIN jobs j ON j.tenant = t.tenant AND j.id = t.key;
