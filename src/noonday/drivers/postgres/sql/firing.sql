-- name: take_over
-- Raise the epoch of some partitions and set their owner. Returns the former owners.
WITH former AS (
    SELECT partition, owner FROM partitions WHERE partition = ANY ($2::smallint[]) ORDER BY partition FOR UPDATE
)
UPDATE partitions p SET epoch = p.epoch + 1, owner = $1
FROM former f WHERE p.partition = f.partition
RETURNING p.partition, p.epoch, f.owner AS former;

-- name: epochs
-- Return the epoch of every partition.
SELECT partition, epoch FROM partitions;

-- name: walk_partitions
-- Return a page of timeline rows of some partitions after a mark, in due order.
-- Differs: here and below, the order names the table's columns. A bare `key` would be the selected text, and each page would
-- read and sort all rows that are due at one instant.
SELECT due_ms, key::text, kind, number, nominal_ms, partition, tenant, pool, lane, early, recurring
FROM timeline
WHERE due_ms IS NOT NULL AND due_ms <= $3 AND (due_ms, key) > ($1, $2::uuid) AND partition = ANY ($5::smallint[])
ORDER BY timeline.due_ms, timeline.key LIMIT $4;

-- name: walk_all
-- Return a page of timeline rows of all partitions after a mark, in due order.
SELECT due_ms, key::text, kind, number, nominal_ms, partition, tenant, pool, lane, early, recurring
FROM timeline
WHERE due_ms IS NOT NULL AND due_ms <= $3 AND (due_ms, key) > ($1, $2::uuid)
ORDER BY timeline.due_ms, timeline.key LIMIT $4;

-- name: walk_tenant
-- Return a page of timeline rows of a tenant in due order, from a mark on, inclusive.
-- Differs: `|| ''` keeps the planner from the tenant's own index, which has the due time but not the key; the tenant has very
-- many rows.
SELECT due_ms, key::text, kind, number, nominal_ms, partition, tenant, pool, lane, early, recurring
FROM timeline
WHERE due_ms IS NOT NULL AND due_ms <= $3 AND (due_ms, key) >= ($1, $2::uuid) AND tenant || '' = $6
      AND partition = ANY ($5::smallint[])
ORDER BY timeline.due_ms, timeline.key LIMIT $4;

-- name: present
-- Return the current timeline rows of some keys.
SELECT t.due_ms, t.key::text, t.kind, t.number, t.nominal_ms, t.partition, t.tenant, t.pool, t.lane, t.early, t.recurring
FROM unnest($1::uuid[]) e (key) JOIN timeline t ON t.key = e.key;

-- name: plans
-- Return the jobs of recurring fires, with their remaining runs.
SELECT coalesce(jsonb_agg(jsonb_build_object('job', job_json(j, false), 'runs_left', t.runs_left)), '[]')::text
FROM unnest($1::text[], $2::uuid[]) e (tenant, id)
     JOIN jobs j ON j.tenant = e.tenant AND j.id = e.id
     JOIN timeline t ON t.key = j.id;

-- name: fire_simple
-- Fire simple one-shots, all in one statement, and note the batch. Skips entries whose timeline row has changed, is not due,
-- is paused or is locked, and entries of partitions with another epoch. Returns the fields of each Dispatch, and the batch.
WITH moment AS MATERIALIZED (
    SELECT coalesce($3::bigint, clock_ms()) AS ms
), ready AS MATERIALIZED (
    SELECT e.execution, t.key, t.due_ms, t.nominal_ms, j.tenant, j.pool, j.handler, j.revision, j.lane, j.timeout_sec,
           j.heartbeat_sec, j.deadline_sec, j.payload, j.trace, j.name, j.endpoint,
           CASE WHEN position('"retryPolicy":{' IN j.spec) > 0
                THEN coalesce((j.spec::jsonb -> 'retryPolicy' ->> 'maxAttempts')::integer, 0) END AS max_attempts
    FROM unnest($5::uuid[], $6::integer[], $7::bigint[], $8::uuid[]) AS e (key, number, nominal_ms, execution)
         JOIN timeline t ON t.key = e.key
         JOIN partitions p ON p.partition = t.partition
         JOIN jobs j ON j.tenant = t.tenant AND j.id = t.key
    WHERE t.number = e.number AND t.nominal_ms = e.nominal_ms AND t.due_ms + 0 <= (SELECT ms FROM moment) + $4
          AND p.epoch = ($2::bigint[])[t.partition + 1]
          AND NOT EXISTS (SELECT 1 FROM pauses WHERE kind = 'ALL')
          AND t.pool <> ALL (ARRAY(SELECT name FROM pauses WHERE kind = 'POOL'))
          AND t.tenant <> ALL (ARRAY(SELECT name FROM pauses WHERE kind = 'TENANT'))
    ORDER BY t.key
    FOR UPDATE OF t SKIP LOCKED
), gone AS (
    DELETE FROM timeline t USING ready WHERE t.key = ready.key
), made AS (
    INSERT INTO executions (id, job_id, tenant, nominal_ms, due_ms, state, attempt, dispatch, revision, cause, pool, handler, lane,
                            watch, created_ms, fired_ms, transitions)
    SELECT execution, key, tenant, nominal_ms, due_ms, 0, 1, 1, revision, 0, pool, handler, lane, 0, ms, ms, '[0,' || ms || ']'
    FROM ready, moment
    ON CONFLICT DO NOTHING
), noted AS (
    INSERT INTO batches (owner, fired_ms, members, dues)
    SELECT $1, (SELECT ms FROM moment), array_agg(execution), array_agg(due_ms) FROM ready HAVING count(*) > 0
    RETURNING id
)
SELECT execution::text AS execution_id, 1 AS number, key::text AS job_id, tenant, pool, handler, due_ms, nominal_ms, 1 AS attempt,
       ms AS fired_ms, revision, timeout_sec, heartbeat_sec AS heartbeat_timeout_sec, deadline_sec AS start_deadline_sec, payload,
       NULL AS progress, trace, name, NULL AS pool_timeout_sec, NULL AS created_trace, lane, endpoint, max_attempts,
       noted.id AS batch
FROM ready, moment, noted;

-- name: fire_capped
-- Fire simple one-shots of which some count against a cap, as `fire_simple`, up to the free slots, first come first served.
-- Slots are locked last. Entries that count against a slot that another transaction has locked are skipped.
WITH moment AS MATERIALIZED (
    SELECT coalesce($3::bigint, clock_ms()) AS ms
), ready AS MATERIALIZED (
    SELECT e.n, e.execution, t.key, t.due_ms, t.nominal_ms, j.tenant, j.pool, j.handler, j.revision, j.lane, j.timeout_sec,
           j.heartbeat_sec, j.deadline_sec, j.payload, j.trace, j.name, j.endpoint,
           CASE WHEN position('"retryPolicy":{' IN j.spec) > 0
                THEN coalesce((j.spec::jsonb -> 'retryPolicy' ->> 'maxAttempts')::integer, 0) END AS max_attempts
    FROM unnest($5::uuid[], $6::integer[], $7::bigint[], $8::uuid[]) WITH ORDINALITY AS e (key, number, nominal_ms, execution, n)
         JOIN timeline t ON t.key = e.key
         JOIN partitions p ON p.partition = t.partition
         JOIN jobs j ON j.tenant = t.tenant AND j.id = t.key
    WHERE t.number = e.number AND t.nominal_ms = e.nominal_ms AND t.due_ms + 0 <= (SELECT ms FROM moment) + $4
          AND p.epoch = ($2::bigint[])[t.partition + 1]
          AND NOT EXISTS (SELECT 1 FROM pauses WHERE kind = 'ALL')
          AND t.pool <> ALL (ARRAY(SELECT name FROM pauses WHERE kind = 'POOL'))
          AND t.tenant <> ALL (ARRAY(SELECT name FROM pauses WHERE kind = 'TENANT'))
    ORDER BY t.key
    FOR UPDATE OF t SKIP LOCKED
), named AS MATERIALIZED (
    SELECT DISTINCT of.tenant, of.key
    FROM (SELECT DISTINCT tenant, pool FROM ready) r CROSS JOIN LATERAL capped_by(r.tenant, r.pool) of
), locked AS MATERIALIZED (
    SELECT s.tenant, s.key, s.cap - s.used AS free
    FROM slots s
    WHERE s.cap IS NOT NULL AND (s.tenant, s.key) IN (SELECT tenant, key FROM named)
    ORDER BY s.tenant, s.key
    FOR UPDATE SKIP LOCKED
), elsewhere AS MATERIALIZED (
    SELECT s.tenant, s.key
    FROM named n JOIN slots s ON s.tenant = n.tenant AND s.key = n.key
    WHERE s.cap IS NOT NULL AND NOT EXISTS (SELECT 1 FROM locked l WHERE l.tenant = s.tenant AND l.key = s.key)
), seen AS (
    -- Caps apply from the narrowest to the widest. An entry that exceeds one cap takes no slot of the next.
    SELECT r.*, here.free AS free_here, pool.free AS free_in_pool, own.free AS free_of_tenant,
           row_number() OVER (PARTITION BY r.tenant, r.pool ORDER BY r.n) AS nth
    FROM ready r
         LEFT JOIN locked here ON here.tenant = r.tenant AND here.key = 'tenant/' || r.pool
         LEFT JOIN locked pool ON pool.tenant = '' AND pool.key = 'pool/' || r.pool
         LEFT JOIN locked own ON own.tenant = r.tenant AND own.key = 'tenant'
    WHERE NOT EXISTS (SELECT 1 FROM capped_by(r.tenant, r.pool) c JOIN elsewhere e ON e.tenant = c.tenant AND e.key = c.key)
), fits_here AS (
    SELECT *, row_number() OVER (PARTITION BY pool ORDER BY n) AS nth_in_pool FROM seen WHERE nth <= coalesce(free_here, nth)
), fits_in_pool AS (
    SELECT *, row_number() OVER (PARTITION BY tenant ORDER BY n) AS nth_of_tenant
    FROM fits_here WHERE nth_in_pool <= coalesce(free_in_pool, nth_in_pool)
), chosen AS MATERIALIZED (
    SELECT *, to_json(array_remove(ARRAY[CASE WHEN free_here IS NOT NULL THEN 'tenant/' || pool END,
                                         CASE WHEN free_in_pool IS NOT NULL THEN 'pool/' || pool END,
                                         CASE WHEN free_of_tenant IS NOT NULL THEN 'tenant' END], NULL))::text AS slots
    FROM fits_in_pool WHERE nth_of_tenant <= coalesce(free_of_tenant, nth_of_tenant)
), gone AS (
    DELETE FROM timeline t USING chosen WHERE t.key = chosen.key
), made AS (
    INSERT INTO executions (id, job_id, tenant, nominal_ms, due_ms, state, attempt, dispatch, revision, cause, pool, handler, lane,
                            watch, created_ms, fired_ms, slots, transitions)
    SELECT execution, key, tenant, nominal_ms, due_ms, 0, 1, 1, revision, 0, pool, handler, lane, 0, ms, ms, slots, '[0,' || ms || ']'
    FROM chosen, moment
    ON CONFLICT DO NOTHING
    RETURNING tenant, pool
), taken AS (
    UPDATE slots s SET used = s.used + w.more
    FROM (SELECT c.tenant, c.key, sum(m.n) AS more
          FROM (SELECT tenant, pool, count(*) AS n FROM made GROUP BY 1, 2) m CROSS JOIN LATERAL capped_by(m.tenant, m.pool) c
          GROUP BY 1, 2) w
    WHERE s.tenant = w.tenant AND s.key = w.key AND s.cap IS NOT NULL
), noted AS (
    INSERT INTO batches (owner, fired_ms, members, dues)
    SELECT $1, (SELECT ms FROM moment), array_agg(execution), array_agg(due_ms) FROM chosen HAVING count(*) > 0
    RETURNING id
)
SELECT execution::text AS execution_id, 1 AS number, key::text AS job_id, tenant, pool, handler, due_ms, nominal_ms, 1 AS attempt,
       ms AS fired_ms, revision, timeout_sec, heartbeat_sec AS heartbeat_timeout_sec, deadline_sec AS start_deadline_sec, payload,
       NULL AS progress, trace, name, NULL AS pool_timeout_sec, NULL AS created_trace, lane, endpoint, max_attempts,
       noted.id AS batch
FROM chosen, moment, noted;

-- name: caps
-- Return the use and the cap of those slots that have a cap.
SELECT s.tenant, s.key, s.used, s.cap
FROM unnest($1::text[], $2::text[]) e (tenant, key) JOIN slots s ON s.tenant = e.tenant AND s.key = e.key
WHERE s.cap IS NOT NULL;

-- name: fire_decided
-- Fire decided entries, all or none. The same statement first refuses those that are paused.
SELECT fire_decided($1, $2::bigint[], $3, $4, $5::jsonb) FROM refuse_paused($5::jsonb -> 'requests');

-- name: pauses
-- Return the kind and name of every pause.
SELECT kind, name FROM pauses;

-- name: constrained_inputs
-- Return the inputs of constrained entries: their jobs with overlap and concurrency limits, open executions, slots in use, and
-- the first fire of each ordering key. One statement reads slots and first fires, because both must be of the same moment.
WITH redispatched AS (
    SELECT x.id, x.tenant, x.job_id, coalesce(x.slots::jsonb, '[]') AS kept
    FROM unnest($3::uuid[]) e (id) JOIN executions x ON x.id = e.id
), named AS (
    SELECT DISTINCT j.tenant, j.id, j.touched, j.spec::jsonb ->> 'overlap' AS overlap,
           j.spec::jsonb -> 'concurrency' ->> 'key' AS key, (j.spec::jsonb -> 'concurrency' ->> 'limit')::integer AS "limit",
           coalesce((j.spec::jsonb -> 'concurrency' ->> 'ordered')::boolean, false) AS ordered
    FROM (SELECT * FROM unnest($1::text[], $2::uuid[]) f (tenant, id) UNION SELECT tenant, job_id FROM redispatched) e
         JOIN jobs j ON j.tenant = e.tenant AND j.id = e.id
)
SELECT jsonb_build_object(
    'executions', (SELECT coalesce(jsonb_agg(to_jsonb(r)), '[]') FROM redispatched r),
    'jobs', (SELECT coalesce(jsonb_agg(jsonb_build_object('version', to_jsonb(n), 'limit', to_jsonb(n))), '[]') FROM named n),
    'open', (SELECT coalesce(jsonb_agg(execution_json(x, NULL, false) ORDER BY x.id), '[]')
             FROM (SELECT DISTINCT n.id, n.overlap FROM named n JOIN unnest($2::uuid[]) f (id) ON f.id = n.id) n
                  CROSS JOIN LATERAL turns_of(n.id, CASE WHEN n.overlap = 'CANCEL_OTHER' THEN 2147483647 ELSE 1 END, 1) turn
                  JOIN executions x ON x.id = turn),
    'slots', (SELECT coalesce(jsonb_agg(jsonb_build_object('tenant', s.tenant, 'key', s.key, 'used', s.used)), '[]')
              FROM (SELECT DISTINCT tenant, CASE WHEN ordered THEN 'ordering/' ELSE 'key/' END || key AS key
                    FROM named WHERE key IS NOT NULL) n
                   JOIN slots s ON s.tenant = n.tenant AND s.key = n.key),
    'heads', (SELECT coalesce(jsonb_agg(jsonb_build_object('tenant', n.tenant, 'ordering_key', n.key, 'key', head.key)), '[]')
              FROM (SELECT DISTINCT tenant, key FROM named WHERE ordered) n
                   CROSS JOIN LATERAL (SELECT t.key FROM timeline t
                                       WHERE t.tenant = n.tenant AND t.ordering_key = n.key AND t.due_ms IS NOT NULL
                                       ORDER BY t.due_ms, t.key LIMIT 1) head)
)::text;

-- name: pool_defaults
-- Return the pools that set a timeout or a retry policy for their handlers: the timeout in seconds, and the number of attempts.
SELECT name, (settings::jsonb ->> 'timeoutSec')::float8 AS timeout_sec,
       CASE WHEN settings::jsonb ->> 'retryPolicy' IS NOT NULL
            THEN coalesce((settings::jsonb -> 'retryPolicy' ->> 'maxAttempts')::integer, 0) END AS max_attempts
FROM pools
WHERE settings::jsonb ->> 'timeoutSec' IS NOT NULL OR settings::jsonb ->> 'retryPolicy' IS NOT NULL;

-- name: dispatches
-- Return the fields of a Dispatch for each execution of a batch that is still PENDING. A start deadline counts from
-- the due time of the occurrence, however often the execution waited since. It is met once the execution has started.
SELECT x.id::text AS execution_id, x.dispatch AS number, x.job_id::text, x.tenant, x.pool, x.handler, m.due_ms, x.nominal_ms, x.attempt,
       x.fired_ms, x.revision,
       CASE WHEN r.revision IS NULL THEN j.timeout_sec ELSE (r.spec::jsonb ->> 'timeoutSec')::float8 END AS timeout_sec,
       CASE WHEN r.revision IS NULL THEN j.heartbeat_sec
            ELSE (r.spec::jsonb ->> 'heartbeatTimeoutSec')::float8 END AS heartbeat_timeout_sec,
       CASE WHEN x.started_ms IS NULL
            THEN CASE WHEN r.revision IS NULL THEN j.deadline_sec ELSE (r.spec::jsonb ->> 'startDeadlineSec')::float8 END
                 + (x.due_ms - m.due_ms) / 1000.0::float8 END AS start_deadline_sec,
       CASE WHEN x.payload IS NOT NULL THEN x.payload WHEN r.revision IS NULL THEN j.payload ELSE r.payload END AS payload,
       x.progress, j.trace, j.name, NULL AS pool_timeout_sec, NULL AS created_trace, x.lane,
       CASE WHEN r.revision IS NULL THEN j.endpoint ELSE r.spec::jsonb -> 'target' ->> 'endpoint' END AS endpoint,
       CASE WHEN position('"retryPolicy":{' IN coalesce(r.spec, j.spec)) > 0
            THEN coalesce((coalesce(r.spec, j.spec)::jsonb -> 'retryPolicy' ->> 'maxAttempts')::integer, 0) END AS max_attempts
FROM batches b CROSS JOIN unnest(b.members, b.dues) WITH ORDINALITY AS m (id, due_ms, n)
     JOIN executions x ON x.id = m.id
     JOIN jobs j ON j.tenant = x.tenant AND j.id = x.job_id
     LEFT JOIN revisions r ON j.revision <> x.revision AND r.job_id = x.job_id AND r.revision = x.revision
WHERE b.id = $1 AND x.state + 0 = 0 AND x.fired_ms + 0 = b.fired_ms
ORDER BY m.n;

-- name: seal
-- Delete batches that the bus has acknowledged.
DELETE FROM batches WHERE id = ANY ($1::bigint[]);

-- name: unsealed
-- Return batches after an id that were fired before an instant and are not acknowledged.
SELECT id, owner, fired_ms FROM batches WHERE fired_ms < $1 AND id > $3 ORDER BY id LIMIT $2;

-- name: orphans
-- Return executions that were dispatched before an instant and that no worker ever reported. This includes those with a fire
-- time so far ahead that a clock must have been set back.
SELECT coalesce(jsonb_agg(versioned_json(x, x.xmin)), '[]')::text
FROM (SELECT *, xmin FROM executions WHERE state < 2 AND state = 0 AND worker_id IS NULL AND (fired_ms < $1 OR fired_ms > $3)
      ORDER BY fired_ms LIMIT $2) f
     JOIN executions x ON x.id = f.id;

-- name: count_due
-- Return the number of due rows and the oldest due time by pool. This runs often, so it counts the first 100,000 due rows
-- only.
SELECT pool, count(*) AS due, min(due_ms) AS oldest_ms
FROM (SELECT pool, due_ms FROM timeline WHERE due_ms BETWEEN 0 AND $1 ORDER BY due_ms, key LIMIT 100000) first GROUP BY pool;

-- name: meta
-- Return a value of the key-value table.
SELECT value FROM meta WHERE key = $1;

-- name: set_meta
-- Set a value of the key-value table.
INSERT INTO meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: forget_meta
-- Delete a value of the key-value table.
DELETE FROM meta WHERE key = $1;

-- name: zoned_fires
-- Return a page of recurring fires with their jobs, in key order.
SELECT t.key::text, jsonb_build_object('job', job_json(j, false), 'fire', fire_json(t))::text AS job_and_fire
FROM timeline t JOIN jobs j ON j.tenant = t.tenant AND j.id = t.key
WHERE t.key > $1::uuid AND t.kind = 0 AND t.recurring = 1
ORDER BY t.key LIMIT $2;

-- name: lock_fires
-- Lock the fires that have not changed since they were read and that no other transaction has locked. Returns their keys.
SELECT t.key::text
FROM unnest($1::uuid[], $2::integer[], $3::bigint[]) e (key, number, nominal_ms) JOIN timeline t ON t.key = e.key
WHERE t.number = e.number AND t.nominal_ms = e.nominal_ms AND t.due_ms IS NOT NULL
ORDER BY t.key
FOR UPDATE OF t SKIP LOCKED;

-- name: existing
-- Return which of some executions exist.
SELECT x.id::text FROM unnest($1::uuid[]) e (id) JOIN executions x ON x.id = e.id;

-- name: write_rows
-- Write a write set.
SELECT write_rows($1::jsonb, $2);
