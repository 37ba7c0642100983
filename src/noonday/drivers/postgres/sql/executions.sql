-- name: place
-- How far the recorder of a partition has come.
SELECT partition, era, next, tick_ms FROM places WHERE partition = $1;

-- name: oldest_tick
-- The last tick applied on the partition of the log that is furthest behind.
SELECT min(tick_ms) FROM places;

-- name: settle
-- A batch of the log: the place moved, plain successes settled, what was decided of the rest, what was used.
SELECT settle($1, $2, $3, $4, $5, $6, $7, $8::uuid[], $9::integer[], $10::text[], $11::bigint[], $12::bigint[], $13::bytea[],
              $14::bytea[], $15::jsonb, $16, $17::jsonb, $18::jsonb)::text[];

-- name: find
-- Some executions as they are, with the version of their rows.
SELECT coalesce(jsonb_agg(jsonb_build_array(execution_json(x, NULL, false), x.xmin::text)), '[]')::text
FROM unnest($1::uuid[]) e (id) JOIN executions x ON x.id = e.id;

-- name: keep_progress
-- What handlers said while they ran.
UPDATE executions x SET progress = e.said
FROM unnest($1::uuid[], $2::integer[], $3::text[], $4::bytea[]) e (id, dispatch, worker, said)
WHERE x.id = e.id AND x.dispatch = e.dispatch AND x.worker_id || '' = e.worker AND x.state + 0 = 1;

-- name: greet_worker
-- A worker is here.
INSERT INTO workers (id, partition, host, pid, concurrency, handlers, started_ms, seen_ms, state)
VALUES ($1, $2, $3, $4, $5, $6, $7, $7, 'ALIVE')
ON CONFLICT (id) DO UPDATE
SET seen_ms = greatest(workers.seen_ms, excluded.seen_ms), state = 'ALIVE', concurrency = excluded.concurrency,
    handlers = excluded.handlers;

-- name: greet_pool
-- A pool exists once a worker registered it, and stays.
INSERT INTO pools (name, settings) VALUES ($1, '{}') ON CONFLICT DO NOTHING;

-- name: greet_handler
-- What the newest worker says of a handler.
INSERT INTO handlers (pool, name, info) VALUES ($1, $2, $3)
ON CONFLICT (pool, name) DO UPDATE SET info = excluded.info WHERE handlers.info <> excluded.info;

-- name: see_worker
-- A sign of life.
UPDATE workers SET seen_ms = greatest(seen_ms, $2), stuck = $3, state = 'ALIVE' WHERE id = $1;

-- name: part_worker
-- A worker left, or is lost.
UPDATE workers SET state = $2, seen_ms = greatest(seen_ms, $3) WHERE id = $1;

-- name: workers_to_judge
-- Workers of a partition of the log that are taken for alive or have RUNNING rows.
SELECT id FROM workers WHERE state = 'ALIVE' AND partition = $1
UNION
SELECT x.worker_id FROM (SELECT DISTINCT worker_id FROM executions WHERE state = 1) x LEFT JOIN workers w ON w.id = x.worker_id
WHERE coalesce(w.partition, $1) = $1;

-- name: running_of_workers
-- What some workers run.
SELECT coalesce(jsonb_agg(jsonb_build_array(execution_json(x, NULL, false), x.xmin::text)), '[]')::text
FROM unnest($1::text[]) e (id) JOIN executions x ON x.worker_id = e.id AND x.state = 1;

-- name: running_of_partition
-- What the workers of a partition of the log run.
SELECT coalesce(jsonb_agg(jsonb_build_array(execution_json(x, NULL, false), x.xmin::text)), '[]')::text
FROM executions x LEFT JOIN workers w ON w.id = x.worker_id
WHERE x.state = 1 AND coalesce(w.partition, $1) = $1;

-- name: handed_out
-- Everything that is handed out and not known to have started.
SELECT coalesce(jsonb_agg(jsonb_build_array(execution_json(x, NULL, false), x.xmin::text)), '[]')::text
FROM executions x WHERE x.state = 0 AND x.worker_id IS NULL AND x.fired_ms IS NOT NULL;

-- name: note_era
-- Note which log is recorded now. Answers nothing if that was noted before.
INSERT INTO meta (key, value) VALUES ('log_era', $1)
ON CONFLICT (key) DO UPDATE SET value = excluded.value WHERE meta.value <> excluded.value
RETURNING 1;

-- name: forget_batches
-- The topics lost their memory: what was in them is back on the timeline.
DELETE FROM batches;

-- name: part_all_workers
-- Nobody of the former log is here any more.
UPDATE workers SET state = 'LOST' WHERE partition = $1 AND state = 'ALIVE';

-- name: keep_attempts
-- What is kept of some attempts.
INSERT INTO accounts (execution_id, dispatch, started_ms, ended_ms, attempt, outcome, account)
SELECT * FROM unnest($1::uuid[], $2::integer[], $3::bigint[], $4::bigint[], $5::integer[], $6::smallint[], $7::bytea[])
ON CONFLICT DO NOTHING;

-- name: accounts
-- What was kept of the attempts of an execution.
SELECT dispatch, attempt, outcome, started_ms, ended_ms, account FROM accounts WHERE execution_id = $1::uuid
ORDER BY dispatch, started_ms;

-- name: incidents
-- What nobody has acted upon yet.
SELECT id, kind, tenant, execution_id::text, job_id::text, message, at_ms FROM incidents ORDER BY id LIMIT $1;

-- name: revocations
-- What of a pool is handed out or running and asked to end, or ended since an instant after it was.
SELECT id::text, dispatch, cancel FROM executions
WHERE cancel IS NOT NULL AND pool = $1 AND coalesce(finished_ms, 9000000000000000) > $2 AND fired_ms IS NOT NULL;

-- name: drop_executions
-- A small step of executions that retention no longer keeps, with their dead letters. The id begins with the time of the
-- occurrence.
WITH old AS MATERIALIZED (
    SELECT array_agg(id) AS ids FROM (
        SELECT id FROM executions WHERE id < $1::uuid AND state = ANY ($2::smallint[]) AND finished_ms < $3 ORDER BY id LIMIT $4) page
), gone AS (
    DELETE FROM executions x USING unnest((SELECT ids FROM old)::uuid[]) e (id) WHERE x.id = e.id RETURNING 1
), dead_gone AS (
    DELETE FROM dead WHERE execution_id = ANY ((SELECT ids FROM old)::uuid[])
), accounts_gone AS (
    DELETE FROM accounts WHERE execution_id = ANY ((SELECT ids FROM old)::uuid[])
), never_reported AS (
    DELETE FROM unreported WHERE execution_id = ANY ((SELECT ids FROM old)::uuid[])
)
SELECT count(*) FROM gone;

-- name: old_executions_but
-- What `drop_executions` drops, but for tenants that keep theirs for longer: of so many rows from a mark on. And the mark to go
-- on from: the last that goes, if there are too many for one step, else the last that was looked at.
WITH looked_at AS MATERIALIZED (
    SELECT id, tenant, state, finished_ms FROM executions WHERE id > $5::uuid AND id < $1::uuid ORDER BY id LIMIT $6
), old AS MATERIALIZED (
    SELECT id FROM looked_at
    WHERE state = ANY ($2::smallint[]) AND finished_ms < $3 AND tenant <> ALL ($7::text[]) ORDER BY id LIMIT $4
)
SELECT ARRAY(SELECT id::text FROM old),
       CASE WHEN (SELECT count(*) FROM old) = $4 THEN (SELECT id::text FROM old ORDER BY id DESC LIMIT 1)
            ELSE (SELECT id::text FROM looked_at ORDER BY id DESC LIMIT 1) END;

-- name: jobs_of
-- Some jobs of a tenant from a mark on.
SELECT id::text FROM jobs WHERE tenant = $1 AND id > $2::uuid ORDER BY id LIMIT $3;

-- name: old_executions_of
-- A small step of executions of some jobs, which ended and are no longer kept.
SELECT x.id::text
FROM unnest($1::uuid[]) e (id) CROSS JOIN LATERAL (
    SELECT x.id FROM executions x
    WHERE (x.job_id, x.id) >= (e.id, '00000000-0000-0000-0000-000000000000') AND (x.job_id, x.id) < (e.id, $2::uuid)
          AND x.id < $2 AND x.state >= 5 AND x.finished_ms < $3
    ORDER BY x.job_id, x.id LIMIT $4) x
LIMIT $4;

-- name: drop_these
-- Some executions, with their dead letters.
WITH gone AS (
    DELETE FROM executions x USING unnest($1::uuid[]) e (id) WHERE x.id = e.id RETURNING 1
), dead_gone AS (
    DELETE FROM dead WHERE execution_id = ANY ($1)
), accounts_gone AS (
    DELETE FROM accounts WHERE execution_id = ANY ($1)
)
SELECT count(*) FROM gone;

-- name: drop_decisions
-- Decisions that are too old.
WITH gone AS (
    DELETE FROM decisions WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM decisions WHERE decided_ms < $1 ORDER BY decided_ms LIMIT $2)) RETURNING 1
)
SELECT count(*) FROM gone;

-- name: drop_audit
-- Audit entries that are too old. They are numbered in order of time, so only the first ones need be looked at.
WITH gone AS (
    DELETE FROM audit WHERE id IN
        (SELECT id FROM (SELECT id, at_ms FROM audit ORDER BY id LIMIT $2) first WHERE at_ms < $1) RETURNING 1
)
SELECT count(*) FROM gone;

-- name: drop_receipts
-- Answers kept under Idempotency-Keys that are too old.
WITH gone AS (
    DELETE FROM receipts WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM receipts WHERE at_ms < $1 ORDER BY at_ms LIMIT $2)) RETURNING 1
)
SELECT count(*) FROM gone;

-- name: drop_usage
-- What was used long ago.
WITH gone AS (
    DELETE FROM usage WHERE ctid = ANY (ARRAY(SELECT ctid FROM usage WHERE day < $1 ORDER BY day LIMIT $2)) RETURNING 1
)
SELECT count(*) FROM gone;

-- name: drop_unused_revisions
-- What replaced jobs once said is needed as long as something that was fired with it is open.
WITH gone AS (
    DELETE FROM revisions WHERE (job_id, revision) IN
        (SELECT r.job_id, r.revision FROM revisions r
         WHERE NOT EXISTS (SELECT 1 FROM executions x WHERE x.job_id = r.job_id AND x.state < 2 AND x.revision = r.revision)
         LIMIT $1) RETURNING 1
)
SELECT count(*) FROM gone;

-- name: drop_workers
-- Workers that left long ago.
DELETE FROM workers WHERE state <> 'ALIVE' AND seen_ms < $1;

-- name: jobs_page
-- Some jobs from a mark on, when each changed last, and whether it ended long ago and has no execution left.
SELECT j.tenant, j.id::text, j.updated_ms,
       j.updated_ms < $3 AND j.state <> 1
       AND (j.state = 2 OR NOT EXISTS (SELECT 1 FROM timeline t WHERE t.key = j.id AND t.due_ms IS NOT NULL OFFSET 0))
       AND NOT EXISTS (SELECT 1 FROM executions x WHERE x.job_id = j.id OFFSET 0)
FROM (SELECT tenant, id, updated_ms, state FROM jobs WHERE (tenant, id) > ($1, $2::uuid) ORDER BY tenant, id LIMIT $4) j;

-- name: drop_jobs
-- Jobs that nothing refers to any more, with what they once said and their timeless fire rows. Answers how many went.
SELECT drop_ended_jobs($1::text[], $2::uuid[], $3::bigint[]);

-- name: lock_partitions
-- Of several that would make partitions at the same time, one does.
SELECT pg_try_advisory_xact_lock(4771262218590114);

-- name: make_partitions
-- Room for the executions of the days to come.
SELECT make_partitions($1, $2);

-- name: drop_partitions
-- Partitions of days before an instant that have nothing in them any more.
SELECT drop_partitions($1);
