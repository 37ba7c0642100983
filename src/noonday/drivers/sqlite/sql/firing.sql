-- name: take_over
-- Raise the epoch of some partitions and set their owner.
UPDATE partitions SET epoch = epoch + 1, owner = ?1 WHERE partition IN (SELECT value FROM json_each(?2));

-- name: owners
-- Return the owners of some partitions.
SELECT partition, owner FROM partitions WHERE partition IN (SELECT value FROM json_each(?1));

-- name: epochs
-- Return the epoch of every partition.
SELECT partition, epoch FROM partitions;

-- name: pauses
-- Return the kind and name of every pause.
SELECT kind, name FROM pauses;

-- name: walk_all
-- Return a page of timeline rows of all partitions after a mark, in due order.
SELECT due_ms, key, kind, number, nominal_ms, partition, tenant, pool, lane, early, recurring
FROM timeline
WHERE due_ms IS NOT NULL AND due_ms <= ?3 AND (due_ms, key) > (?1, ?2)
ORDER BY due_ms, key LIMIT ?4;

-- name: walk_partitions
-- Return a page of timeline rows of some partitions after a mark, in due order.
SELECT due_ms, key, kind, number, nominal_ms, partition, tenant, pool, lane, early, recurring
FROM timeline
WHERE due_ms IS NOT NULL AND due_ms <= ?3 AND (due_ms, key) > (?1, ?2)
      AND partition IN (SELECT value FROM json_each(?5))
ORDER BY due_ms, key LIMIT ?4;

-- name: walk_tenant
-- Return a page of timeline rows of a tenant in due order, from a mark on, inclusive.
SELECT due_ms, key, kind, number, nominal_ms, partition, tenant, pool, lane, early, recurring
FROM timeline
WHERE due_ms IS NOT NULL AND due_ms <= ?3 AND (due_ms, key) >= (?1, ?2) AND tenant = ?6
      AND partition IN (SELECT value FROM json_each(?5))
ORDER BY due_ms, key LIMIT ?4;

-- name: present
-- Return the current timeline rows of some keys.
SELECT t.due_ms, t.key, t.kind, t.number, t.nominal_ms, t.partition, t.tenant, t.pool, t.lane, t.early, t.recurring, t.runs_left
FROM json_each(?1) e CROSS JOIN timeline t ON t.key = e.value;

-- name: plans
-- Return the jobs of recurring fires, with their remaining runs.
SELECT json_group_array(json_object('job', json(j.json), 'runs_left', t.runs_left))
FROM json_each(?1) e CROSS JOIN job_rows j ON j.tenant = e.value ->> 'tenant' AND j.id = e.value ->> 'id'
     CROSS JOIN timeline t ON t.key = j.id;

-- name: simple_dispatches
-- Return the fields of a Dispatch for each simple one-shot that is due, by job and new execution, in their order.
SELECT e.value AS execution_id, 1 AS number, t.key AS job_id, t.tenant, t.pool, j.handler, t.due_ms, t.nominal_ms, 1 AS attempt,
       ?2 AS fired_ms, j.revision, j.timeout_sec, j.heartbeat_sec AS heartbeat_timeout_sec, j.deadline_sec AS start_deadline_sec,
       j.payload, NULL AS progress, j.trace, j.name, NULL AS pool_timeout_sec, NULL AS created_trace, j.lane, j.endpoint,
       iif(instr(j.spec, '"retryPolicy":{'), coalesce(j.spec ->> '$.retryPolicy.maxAttempts', 0), NULL) AS max_attempts
FROM json_each(?1) e CROSS JOIN timeline t ON t.key = e.key CROSS JOIN jobs j ON j.tenant = t.tenant AND j.id = t.key
WHERE t.number = j.revision AND t.due_ms <= ?3;

-- name: add_simple
-- Insert the executions of simple one-shots, except those that exist.
INSERT OR IGNORE INTO executions (id, job_id, tenant, nominal_ms, due_ms, revision, pool, handler, lane, created_ms, fired_ms,
                                  slots, transitions, state, attempt, dispatch, cause, watch)
VALUES (:execution_id, :job_id, :tenant, :nominal_ms, :due_ms, :revision, :pool, :handler, :lane, :created_ms, :fired_ms,
        :slots, :transitions, 0, 1, 1, 0, 0);

-- name: pool_defaults
-- Return the pools that set a timeout or a retry policy for their handlers: the timeout in seconds, and the number of attempts.
SELECT name, settings ->> '$.timeoutSec' AS timeout_sec,
       iif(settings ->> '$.retryPolicy' IS NOT NULL, coalesce(settings ->> '$.retryPolicy.maxAttempts', 0), NULL) AS max_attempts
FROM pools
WHERE settings ->> '$.timeoutSec' IS NOT NULL OR settings ->> '$.retryPolicy' IS NOT NULL;

-- name: jobs_of_executions
-- Return the tenants, jobs and kept slots of some executions.
SELECT x.id, x.tenant, x.job_id, coalesce(x.slots, '[]') AS kept FROM json_each(?1) e CROSS JOIN executions x ON x.id = e.value;

-- name: dispatches
-- Return the fields of a Dispatch for each execution of a batch that is still PENDING. A start deadline counts from
-- the due time of the occurrence, however often the execution waited since. It is met once the execution has started.
SELECT x.id AS execution_id, x.dispatch AS number, x.job_id, x.tenant, x.pool, x.handler, e.value AS due_ms, x.nominal_ms,
       x.attempt, x.fired_ms, x.revision, iif(r.revision IS NULL, j.timeout_sec, r.spec ->> '$.timeoutSec') AS timeout_sec,
       iif(r.revision IS NULL, j.heartbeat_sec, r.spec ->> '$.heartbeatTimeoutSec') AS heartbeat_timeout_sec,
       iif(x.started_ms IS NULL, iif(r.revision IS NULL, j.deadline_sec, r.spec ->> '$.startDeadlineSec')
                                 + (x.due_ms - e.value) / 1000.0, NULL) AS start_deadline_sec,
       coalesce(x.payload, iif(r.revision IS NULL, j.payload, r.payload)) AS payload, x.progress, j.trace, j.name, NULL AS pool_timeout_sec,
       NULL AS created_trace, x.lane, iif(r.revision IS NULL, j.endpoint, r.spec ->> '$.target.endpoint') AS endpoint,
       iif(instr(coalesce(r.spec, j.spec), '"retryPolicy":{'), coalesce(coalesce(r.spec, j.spec) ->> '$.retryPolicy.maxAttempts', 0),
           NULL) AS max_attempts
FROM json_each(?1) e CROSS JOIN executions x ON x.id = e.key
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
SELECT id, owner, fired_ms FROM batches WHERE fired_ms < ?1 AND id > ?3 ORDER BY id LIMIT ?2;

-- name: batch_members
-- Return the members of a batch: the due time of each execution.
SELECT members FROM batches WHERE id = ?1;

-- name: existing
-- Return which of some executions exist.
SELECT x.id FROM json_each(?1) e CROSS JOIN executions x ON x.id = e.value;

-- name: orphans
-- Return executions that were dispatched before an instant and that no worker ever reported. This includes those with a fire
-- time so far ahead that a clock must have been set back.
SELECT json_group_array(json(json))
FROM (SELECT json FROM execution_rows
      WHERE state < 2 AND state = 0 AND worker_id IS NULL AND (fired_ms < ?1 OR fired_ms > ?3)
      LIMIT ?2);

-- name: count_due
-- Return the number of due rows and the oldest due time by pool. This runs often, so it counts the first 100,000 due rows
-- only.
SELECT pool, count(*) AS due, min(due_ms) AS oldest_ms
FROM (SELECT pool, due_ms FROM timeline WHERE due_ms <= ?1 ORDER BY due_ms, key LIMIT 100000) GROUP BY pool;

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
SELECT t.key, json_object('job', json(j.json), 'fire', json_object('nominal_ms', t.nominal_ms, 'due_ms', t.due_ms,
                                                                'runs_left', t.runs_left)) AS job_and_fire
FROM (SELECT * FROM timeline WHERE key > ?1 AND kind = 0 AND recurring = 1 ORDER BY key LIMIT ?2) t
     CROSS JOIN job_rows j ON j.tenant = t.tenant AND j.id = t.key;
