-- Tables, columns and functions get the names that the documentation uses, and functions take and return rows by name. Processes of
-- a former release must be stopped before this migration.
ALTER TABLE timeline RENAME COLUMN staged TO early;
ALTER TABLE timeline RENAME COLUMN planned TO recurring;
ALTER TABLE timeline RENAME COLUMN line TO ordering_key;
DROP INDEX IF EXISTS timeline_planned;
CREATE INDEX timeline_recurring ON timeline (key) WHERE kind = 0 AND recurring = 1;
DROP INDEX IF EXISTS timeline_line;
CREATE INDEX timeline_ordering_key ON timeline (tenant, ordering_key, due_ms, key) WHERE ordering_key IS NOT NULL;

ALTER TABLE executions RENAME COLUMN cancel TO revocation;
ALTER TABLE executions RENAME COLUMN moves TO transitions;
DROP INDEX IF EXISTS executions_wished;
CREATE INDEX executions_revoked ON executions (pool, coalesce(finished_ms, 9000000000000000)) WHERE revocation IS NOT NULL;

ALTER TABLE places RENAME TO checkpoints;
ALTER TABLE checkpoints RENAME COLUMN era TO generation;
ALTER TABLE checkpoints RENAME COLUMN next TO next_offset;
UPDATE meta SET key = 'log_generation' WHERE key = 'log_era';

ALTER TABLE accounts RENAME TO attempt_records;
ALTER TABLE attempt_records RENAME COLUMN account TO details;

ALTER TABLE alerts RENAME COLUMN occasion TO dedup_key;
DROP INDEX IF EXISTS alerts_about;
CREATE INDEX alerts_dedup_key ON alerts (tenant, about, kind, dedup_key) WHERE dedup_key IS NOT NULL;
ALTER TABLE happenings RENAME TO alert_events;
ALTER TABLE alert_preferences RENAME COLUMN said TO spec;
ALTER TABLE notice_lines RENAME TO digest_items;

-- The slot of an ordering key is named after it.
UPDATE slots SET key = 'ordering/' || substr(key, 6) WHERE key LIKE 'line/%';
UPDATE executions x
SET slots = (SELECT jsonb_agg(CASE WHEN name LIKE 'line/%' THEN 'ordering/' || substr(name, 6) ELSE name END)::text
             FROM jsonb_array_elements_text(x.slots::jsonb) name)
WHERE x.state < 2 AND x.slots LIKE '%line/%';

DROP FUNCTION callers_settle(text, bigint);
DROP FUNCTION callers_look(text);
DROP FUNCTION callers_add(text);
DROP FUNCTION callers_tell(jsonb);
DROP FUNCTION fire_planned(text, bigint[], bigint, bigint, jsonb);
DROP FUNCTION refuse_paused(jsonb);
DROP FUNCTION settle(integer, text, bigint, text, bigint, bigint, text, uuid[], integer[], text[], bigint[], bigint[], bytea[], bytea[],
                     jsonb, bigint, jsonb, jsonb);
DROP FUNCTION apply_ledger(jsonb, bigint);
DROP FUNCTION write_ledger(jsonb, bigint);
DROP FUNCTION merge_slots(jsonb);
DROP FUNCTION lock_slots(jsonb);
DROP FUNCTION check_unchanged(jsonb);
DROP FUNCTION lock_decided(jsonb);
DROP FUNCTION add_usage(jsonb, jsonb);

-- Each function does in one round trip what must not wait for a client under locks. A refused call has written nothing, and has
-- one of these SQLSTATEs: ND001 the checkpoint was moved by another recorder; ND002 rows changed after they were read; ND003 some
-- reports are not simple successes; ND004 some entries are stale, locked or paused; ND005 some slots are locked. The detail of the
-- last three names the rows.
--
-- `+ 0` keeps the planner from a partial or ordered index that looks small while it believes that a table is: rows are looked up
-- by their keys.
--
-- Rows are locked in one order everywhere: jobs, timeline, executions, slots, each by key.

-- Return an execution as JSON by the names of its columns. Without `whole`, progress, result and transitions are left out.
CREATE OR REPLACE FUNCTION execution_json(x executions, waits_until_ms bigint, whole boolean) RETURNS jsonb LANGUAGE sql STABLE
RETURN to_jsonb(x) - '{progress,result,transitions}'::text[]
       || jsonb_build_object('slots', CASE WHEN x.state < 2 AND x.slots IS NOT NULL THEN x.slots::jsonb ELSE '[]' END,
                             'waits_until_ms', waits_until_ms)
       || CASE WHEN whole THEN jsonb_build_object('progress', base64(x.progress), 'result', base64(x.result),
                                                  'transitions', x.transitions)
               ELSE '{}' END;

-- Return a job as JSON by the names of its columns.
CREATE OR REPLACE FUNCTION job_json(j jobs, with_payload boolean) RETURNS jsonb LANGUAGE sql STABLE
RETURN jsonb_build_object('id', j.id, 'tenant', j.tenant, 'revision', j.revision, 'state', j.state, 'spec', j.spec::jsonb,
                          'anchor_ms', j.anchor_ms, 'payload', CASE WHEN with_payload THEN base64(j.payload) END,
                          'created_ms', j.created_ms, 'updated_ms', j.updated_ms, 'trace', j.trace, 'halted', j.halted);

-- Return a fire row as JSON.
CREATE FUNCTION fire_json(t timeline) RETURNS jsonb LANGUAGE sql STABLE
RETURN jsonb_build_object('nominal_ms', t.nominal_ms, 'due_ms', t.due_ms, 'runs_left', t.runs_left);

-- Return an execution with the version of its row.
CREATE FUNCTION versioned_json(x executions, version xid) RETURNS jsonb LANGUAGE sql STABLE
RETURN jsonb_build_object('execution', execution_json(x, NULL, false), 'version', version::text);

-- Return the version of a job's row: its change counter, and whether the job is paused.
CREATE FUNCTION job_version_json(j jobs) RETURNS jsonb LANGUAGE sql STABLE
RETURN jsonb_build_object('tenant', j.tenant, 'id', j.id, 'touched', j.touched, 'is_paused', j.state = 1);

-- Lock the jobs that a decision was made from, then the fire rows that get runs back.
CREATE FUNCTION lock_decided(w jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF w ? 'jobs' THEN
        PERFORM 1 FROM jsonb_to_recordset(w -> 'jobs') e (tenant text, id uuid)
        JOIN jobs j ON j.tenant = e.tenant AND j.id = e.id
        ORDER BY j.tenant, j.id FOR UPDATE OF j;
    END IF;
    IF w ? 'returned_runs' THEN
        PERFORM 1 FROM jsonb_to_recordset(w -> 'returned_runs') e (job_id uuid) JOIN timeline t ON t.key = e.job_id
        ORDER BY t.key FOR UPDATE OF t;
    END IF;
END $$;

-- Lock the rows that a decision was made from, and refuse it if one has changed. Runs return to `maxRuns` here, because the
-- timeline comes before executions.
CREATE FUNCTION check_unchanged(w jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    unchanged bigint;
BEGIN
    IF w ? 'jobs' THEN
        SELECT count(*) INTO unchanged FROM (
            SELECT 1 FROM jsonb_to_recordset(w -> 'jobs') e (tenant text, id uuid, touched integer)
            JOIN jobs j ON j.tenant = e.tenant AND j.id = e.id
            WHERE j.touched = e.touched
            ORDER BY j.tenant, j.id FOR UPDATE OF j) locked;
        IF unchanged < jsonb_array_length(w -> 'jobs') THEN
            RAISE EXCEPTION 'a job has changed' USING ERRCODE = 'ND002';
        END IF;
    END IF;
    IF w ? 'returned_runs' THEN
        PERFORM lock_decided(jsonb_build_object('returned_runs', w -> 'returned_runs'));
        UPDATE timeline t SET runs_left = t.runs_left + e.count
        FROM jsonb_to_recordset(w -> 'returned_runs') e (job_id uuid, count integer)
        WHERE t.key = e.job_id AND t.runs_left IS NOT NULL;
    END IF;
    IF w ? 'versions' THEN
        -- The rows are compared in a later statement than the one that locks them.
        PERFORM 1 FROM jsonb_to_recordset(w -> 'versions') e (id uuid) JOIN executions x ON x.id = e.id
        ORDER BY x.id FOR UPDATE OF x;
        SELECT count(*) INTO unchanged
        FROM jsonb_to_recordset(w -> 'versions') e (id uuid, version text) JOIN executions x ON x.id = e.id
        WHERE x.xmin::text = e.version;
        IF unchanged < jsonb_array_length(w -> 'versions') THEN
            RAISE EXCEPTION 'an execution has changed' USING ERRCODE = 'ND002';
        END IF;
    END IF;
END $$;

-- Lock the slots of some changes that exist.
CREATE FUNCTION lock_slots(changes jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF changes IS NOT NULL THEN
        PERFORM 1 FROM jsonb_to_recordset(changes) e (tenant text, key text) JOIN slots s ON s.tenant = e.tenant AND s.key = e.key
        ORDER BY s.tenant, s.key FOR UPDATE OF s;
    END IF;
END $$;

-- Return changes of slots with each slot once.
CREATE FUNCTION merge_slots(changes jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE
RETURN (SELECT jsonb_agg(jsonb_build_object('tenant', tenant, 'key', key, 'more', more, 'limit', most))
        FROM (SELECT e.tenant, e.key, sum(e.more) AS more, min(e."limit") AS most
              FROM jsonb_to_recordset(changes) e (tenant text, key text, more integer, "limit" integer) GROUP BY 1, 2) merged);

-- Change how many executions occupy some slots. Refuses a slot that would exceed its limit.
CREATE FUNCTION change_slots(changes jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO slots (tenant, key, used)
    SELECT e.tenant, e.key, e.more FROM jsonb_to_recordset(changes) e (tenant text, key text, more integer)
    ORDER BY e.tenant COLLATE "C", e.key COLLATE "C"
    ON CONFLICT (tenant, key) DO UPDATE SET used = greatest(0, slots.used + excluded.used);
    PERFORM 1 FROM jsonb_to_recordset(changes) e (tenant text, key text, more integer, "limit" integer)
                   JOIN slots s ON s.tenant = e.tenant AND s.key = e.key
    WHERE e.more > 0 AND s.used > coalesce(e."limit", s.cap);
    IF FOUND THEN
        RAISE EXCEPTION 'a slot is no longer free' USING ERRCODE = 'ND002';
    END IF;
    DELETE FROM slots s USING jsonb_to_recordset(changes) e (tenant text, key text)
    WHERE s.tenant = e.tenant AND s.key = e.key AND s.used <= 0 AND s.cap IS NULL;
END $$;

-- Write a write set. Returns how many of its new executions did not exist.
CREATE FUNCTION write_rows(w jsonb, now_ms bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    created bigint := 0;
    made uuid[];
BEGIN
    IF w ? 'new_executions' THEN
        WITH inserted AS (
        INSERT INTO executions (id, job_id, tenant, nominal_ms, due_ms, state, attempt, dispatch, revision, cause, pool, handler,
                                lane, watch, created_ms, fired_ms, buffered, retry_of, slots, transitions)
        SELECT e.id, j.id, j.tenant, e.nominal_ms, e.due_ms, 0, 1, 1, j.revision, e.cause, j.pool, j.handler, j.lane, j.watch, now_ms,
               CASE WHEN e.fired_ms IS NOT NULL THEN now_ms END, e.buffered, e.retry_of, e.slots, '[0,' || now_ms || ']'
        FROM jsonb_to_recordset(w -> 'new_executions')
             e (id uuid, tenant text, job_id uuid, nominal_ms bigint, due_ms bigint, cause smallint, fired_ms bigint,
                buffered smallint, retry_of uuid, slots text)
             JOIN jobs j ON j.tenant = e.tenant AND j.id = e.job_id
        ORDER BY e.id
        ON CONFLICT DO NOTHING
        RETURNING id)
        SELECT count(*), array_agg(id) INTO created, made FROM inserted;
        IF w ? 'slots' AND created < jsonb_array_length(w -> 'new_executions') THEN
            -- Executions that existed occupy their slots already.
            w := jsonb_set(w, '{slots}', merge_slots((w -> 'slots') || coalesce((
                SELECT jsonb_agg(jsonb_build_object('tenant', CASE WHEN name LIKE 'pool/%' THEN '' ELSE e.tenant END,
                                                    'key', name, 'more', -1))
                FROM jsonb_to_recordset(w -> 'new_executions') e (id uuid, tenant text, slots jsonb)
                     CROSS JOIN LATERAL jsonb_array_elements_text(e.slots) name
                WHERE jsonb_typeof(e.slots) = 'array' AND e.id <> ALL (coalesce(made, '{}'))), '[]')));
        END IF;
    END IF;
    IF w ? 'redispatched' THEN
        UPDATE executions x SET fired_ms = now_ms, slots = e.slots
        FROM jsonb_to_recordset(w -> 'redispatched') e (id uuid, slots text)
        WHERE x.id = e.id AND x.state + 0 = 0;
    END IF;
    IF w ? 'settled' THEN
        UPDATE executions x
        SET state = e.state, attempt = e.attempt, dispatch = e.dispatch, revision = e.revision, fired_ms = e.fired_ms,
            buffered = e.buffered, worker_id = e.worker_id, started_ms = e.started_ms, finished_ms = e.finished_ms,
            revocation = e.revocation, failure = e.failure, progress = coalesce(decode(e.progress, 'base64'), x.progress),
            result = decode(e.result, 'base64'), slots = nullif(e.slots, '[]'), pool = e.pool, handler = e.handler, lane = e.lane,
            watch = e.watch, transitions = x.transitions || e.transitions
        FROM jsonb_to_recordset(w -> 'settled')
             e (id uuid, state smallint, attempt integer, dispatch integer, revision integer, fired_ms bigint, buffered smallint,
                worker_id text, started_ms bigint, finished_ms bigint, revocation text, failure text, progress text, result text,
                slots text, pool text, handler text, lane smallint, watch smallint, transitions text)
        WHERE x.id = e.id;
    END IF;
    IF w ? 'revoked' THEN
        UPDATE executions x SET revocation = e.reason
        FROM jsonb_to_recordset(w -> 'revoked') e (id uuid, reason text) WHERE x.id = e.id;
    END IF;
    IF w ? 'dropped' THEN
        DELETE FROM timeline WHERE key IN (SELECT value::uuid FROM jsonb_array_elements_text(w -> 'dropped'));
    END IF;
    IF w ? 'timeline' THEN
        INSERT INTO timeline (due_ms, key, kind, number, nominal_ms, partition, tenant, pool, lane, early, recurring, runs_left,
                              ordering_key)
        SELECT e.due_ms, e.key, e.kind, e.number, e.nominal_ms, e.partition, e.tenant, e.pool, e.lane, e.early, e.recurring,
               e.runs_left, e.ordering_key
        FROM jsonb_populate_recordset(NULL::timeline, w -> 'timeline') e
        ORDER BY e.key
        ON CONFLICT (key) DO UPDATE
        SET due_ms = excluded.due_ms, kind = excluded.kind, number = excluded.number, nominal_ms = excluded.nominal_ms,
            pool = excluded.pool, lane = excluded.lane, early = excluded.early, recurring = excluded.recurring,
            runs_left = excluded.runs_left, ordering_key = excluded.ordering_key;
    END IF;
    IF w ? 'decisions' THEN
        INSERT INTO decisions (job_id, from_ms, to_ms, count, outcome, reason, decided_ms)
        SELECT e.job_id, e.from_ms, e.to_ms, e.count, e.outcome, e.reason, now_ms
        FROM jsonb_populate_recordset(NULL::decisions, w -> 'decisions') e
        ON CONFLICT DO NOTHING;
    END IF;
    IF w ? 'dead_letters' THEN
        INSERT INTO dead (execution_id, tenant, job_id, pool, handler, died_ms)
        SELECT x.id, x.tenant, x.job_id, x.pool, x.handler, now_ms
        FROM jsonb_array_elements_text(w -> 'dead_letters') e JOIN executions x ON x.id = e.value::uuid
        ON CONFLICT (execution_id) DO NOTHING;
    END IF;
    IF w ? 'incidents' THEN
        INSERT INTO incidents (kind, tenant, execution_id, job_id, message, at_ms)
        SELECT e.kind, e.tenant, e.execution_id, e.job_id, e.message, now_ms
        FROM jsonb_populate_recordset(NULL::incidents, w -> 'incidents') e;
    END IF;
    IF w ? 'slots' THEN
        PERFORM change_slots(w -> 'slots');
    END IF;
    IF w ? 'touched_jobs' THEN
        UPDATE jobs j SET touched = touched + 1 FROM jsonb_to_recordset(w -> 'touched_jobs') e (tenant text, id uuid)
        WHERE j.tenant = e.tenant AND j.id = e.id;
    END IF;
    RETURN created;
END $$;

-- Write a write set if the rows that it was decided from are unchanged.
CREATE FUNCTION apply_writes(w jsonb, now_ms bigint) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    PERFORM check_unchanged(w);
    PERFORM lock_slots(w -> 'slots');
    RETURN write_rows(w, now_ms);
END $$;

-- Refuse fire requests of a tenant or pool that is paused.
CREATE FUNCTION refuse_paused(requests jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    refused text;
BEGIN
    IF NOT EXISTS (SELECT 1 FROM pauses) THEN
        RETURN;
    END IF;
    SELECT json_agg(t.key)::text INTO refused
    FROM jsonb_to_recordset(requests) e (key uuid) JOIN timeline t ON t.key = e.key
    WHERE EXISTS (SELECT 1 FROM pauses z
                  WHERE z.kind = 'ALL' OR z.kind = 'POOL' AND z.name = t.pool OR z.kind = 'TENANT' AND z.name = t.tenant);
    IF refused IS NOT NULL THEN
        RAISE EXCEPTION 'some entries are paused' USING ERRCODE = 'ND004', DETAIL = refused;
    END IF;
END $$;

-- Fire decided entries, all of them or none, and return the batch. It waits for no lock: entries of locked jobs count as stale.
-- Beside the rows of `write_rows`, w has the jobs of the decision, the requests (key, number, nominal_ms, job_id, is_planned,
-- runs_left) and the members of the batch (id, due_ms).
CREATE FUNCTION fire_decided(instance text, epochs bigint[], given_ms bigint, lead_ms bigint, w jsonb, OUT batch bigint)
LANGUAGE plpgsql AS $$
DECLARE
    valid uuid[];
    own jsonb;
    own_slots text[];
    present bigint;
    left_out text;
    at_ms bigint;
BEGIN
    at_ms := coalesce(given_ms, clock_ms());
    IF w ? 'jobs' THEN
        SELECT coalesce(jsonb_object_agg(id, touched), '{}') INTO own FROM (
            SELECT j.id, j.touched FROM jsonb_to_recordset(w -> 'jobs') e (tenant text, id uuid)
            JOIN jobs j ON j.tenant = e.tenant AND j.id = e.id
            ORDER BY j.tenant, j.id FOR UPDATE OF j SKIP LOCKED) locked;
        SELECT json_agg(e.key)::text INTO left_out FROM jsonb_to_recordset(w -> 'requests') e (key text, job_id text)
        WHERE e.job_id IS NOT NULL AND NOT own ? e.job_id
              AND EXISTS (SELECT 1 FROM jsonb_array_elements(w -> 'jobs') j WHERE j ->> 'id' = e.job_id);
        IF left_out IS NOT NULL THEN
            RAISE EXCEPTION 'some jobs are locked' USING ERRCODE = 'ND004', DETAIL = left_out;
        END IF;
        PERFORM 1 FROM jsonb_to_recordset(w -> 'jobs') e (id text, touched integer)
        WHERE (own ->> e.id)::integer IS DISTINCT FROM e.touched;
        IF FOUND THEN
            RAISE EXCEPTION 'a job has changed' USING ERRCODE = 'ND002';
        END IF;
    END IF;
    SELECT array_agg(key) INTO valid FROM (
        SELECT t.key
        FROM jsonb_to_recordset(w -> 'requests')
             e (key uuid, number integer, nominal_ms bigint, is_planned boolean, runs_left integer)
        JOIN timeline t ON t.key = e.key
        JOIN partitions p ON p.partition = t.partition
        WHERE t.number = e.number AND t.nominal_ms = e.nominal_ms AND t.due_ms + 0 <= at_ms + lead_ms
              AND p.epoch = epochs[t.partition + 1]
              AND (NOT e.is_planned OR t.runs_left IS NOT DISTINCT FROM e.runs_left)
        ORDER BY t.key FOR UPDATE OF t SKIP LOCKED) locked;
    IF coalesce(cardinality(valid), 0) < jsonb_array_length(w -> 'requests') THEN
        RAISE EXCEPTION 'some entries are stale or locked' USING ERRCODE = 'ND004', DETAIL = coalesce(
            (SELECT json_agg(e.key)::text FROM jsonb_to_recordset(w -> 'requests') e (key uuid)
             WHERE e.key <> ALL (coalesce(valid, '{}'))), '[]');
    END IF;
    IF w ? 'slots' THEN
        SELECT array_agg(ROW (tenant, key)::text) INTO own_slots FROM (
            SELECT s.tenant, s.key
            FROM jsonb_to_recordset(w -> 'slots') e (tenant text, key text) JOIN slots s ON s.tenant = e.tenant AND s.key = e.key
            ORDER BY s.tenant, s.key FOR UPDATE OF s SKIP LOCKED) locked;
        -- Locked slots are counted first and named only if there are any, because a batch may have thousands.
        SELECT count(*) INTO present
        FROM jsonb_to_recordset(w -> 'slots') e (tenant text, key text) JOIN slots s ON s.tenant = e.tenant AND s.key = e.key;
        IF present > coalesce(cardinality(own_slots), 0) THEN
            SELECT jsonb_agg(jsonb_build_array(s.tenant, s.key))::text INTO left_out
            FROM jsonb_to_recordset(w -> 'slots') e (tenant text, key text) JOIN slots s ON s.tenant = e.tenant AND s.key = e.key
            WHERE ROW (s.tenant, s.key)::text <> ALL (coalesce(own_slots, '{}'));
            RAISE EXCEPTION 'some slots are locked' USING ERRCODE = 'ND005', DETAIL = coalesce(left_out, '[]');
        END IF;
    END IF;
    PERFORM write_rows(w, at_ms);
    IF w ? 'members' THEN
        INSERT INTO batches (owner, fired_ms, members, dues)
        SELECT instance, at_ms, array_agg(e.id), array_agg(e.due_ms)
        FROM jsonb_to_recordset(w -> 'members') e (id uuid, due_ms bigint)
        RETURNING id INTO batch;
    END IF;
END $$;

-- Add usage to tenants. `repeated` has the usage of successes that were settled before, each with its execution: it counts for
-- those that no worker had reported yet. Returns which these are.
CREATE FUNCTION add_usage(counted jsonb, repeated jsonb) RETURNS uuid[] LANGUAGE plpgsql AS $$
DECLARE
    first_reported uuid[];
BEGIN
    IF jsonb_array_length(repeated) > 0 THEN
        WITH gone AS (
            DELETE FROM unreported u USING jsonb_array_elements(repeated) e WHERE u.execution_id = (e ->> 'execution_id')::uuid
            RETURNING u.execution_id, e AS row)
        SELECT array_agg(gone.execution_id), counted || coalesce(jsonb_agg(gone.row), '[]') INTO first_reported, counted FROM gone;
    END IF;
    INSERT INTO usage (tenant, day, runs, succeeded, failed, run_ms, payload_bytes)
    SELECT e.tenant, e.day, sum(e.runs), sum(e.succeeded), sum(e.failed), sum(e.run_ms), sum(e.payload_bytes)
    FROM jsonb_populate_recordset(NULL::usage, counted) e GROUP BY 1, 2 ORDER BY 1, 2
    ON CONFLICT (tenant, day) DO UPDATE
    SET runs = usage.runs + excluded.runs, succeeded = usage.succeeded + excluded.succeeded,
        failed = usage.failed + excluded.failed, run_ms = usage.run_ms + excluded.run_ms,
        payload_bytes = usage.payload_bytes + excluded.payload_bytes;
    RETURN first_reported;
END $$;

-- Settle a batch of the log: move the checkpoint, settle simple successes, write what was decided for the rest, and add usage.
CREATE FUNCTION settle(log_partition integer, was_generation text, was_offset bigint, now_generation text, now_offset bigint,
                       now_tick_ms bigint, now_recent text, ids uuid[], dispatches integer[], worker_ids text[], started bigint[],
                       ended bigint[], results bytea[], progress_ bytea[], w jsonb, now_ms bigint, counted jsonb, repeated jsonb)
RETURNS uuid[] LANGUAGE plpgsql AS $$
DECLARE
    done uuid[];
    freed_slots jsonb;
BEGIN
    IF was_generation IS NULL THEN
        INSERT INTO checkpoints (partition, generation, next_offset, tick_ms, recent)
        VALUES (log_partition, now_generation, now_offset, now_tick_ms, now_recent)
        ON CONFLICT DO NOTHING;
    ELSE
        UPDATE checkpoints SET generation = now_generation, next_offset = now_offset, tick_ms = now_tick_ms, recent = now_recent
        WHERE partition = log_partition AND generation = was_generation AND next_offset = was_offset;
    END IF;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'another recorder moved the checkpoint' USING ERRCODE = 'ND001';
    END IF;
    IF w IS NOT NULL THEN
        IF cardinality(ids) > 0 THEN
            -- Both kinds together in the order of ids: each by itself would be two orders.
            PERFORM lock_decided(w);
            PERFORM 1 FROM executions x
            WHERE x.id = ANY (ids || ARRAY(SELECT e.id FROM jsonb_to_recordset(coalesce(w -> 'versions', '[]')) e (id uuid)))
            ORDER BY x.id FOR UPDATE;
        END IF;
        PERFORM check_unchanged(w);
        PERFORM write_rows(w - 'slots', now_ms);
    END IF;
    IF cardinality(ids) > 0 THEN
        WITH settled AS (
            UPDATE executions x
            SET state = 5, worker_id = e.worker, started_ms = CASE WHEN state = 0 THEN e.started ELSE started_ms END,
                finished_ms = e.ended, failure = NULL, result = e.result, progress = coalesce(e.progress, x.progress),
                transitions = transitions || CASE WHEN state = 0 THEN ',[1,' || e.started || ',"' || e.worker || '"]' ELSE '' END
                                          || ',[5,' || e.ended || ']'
            -- Rows are updated, and so locked, in this order.
            FROM (SELECT * FROM unnest(ids, dispatches, worker_ids, started, ended, results, progress_)
                               AS u (id, dispatch, worker, started, ended, result, progress)
                  ORDER BY u.id) e
            WHERE x.id = e.id AND x.dispatch = e.dispatch AND x.state + 0 < 2 AND x.fired_ms IS NOT NULL AND x.watch = 0
                  AND (x.worker_id IS NULL OR x.worker_id = e.worker)
            RETURNING x.id, x.tenant, x.slots),
        freed AS (
            SELECT CASE WHEN name LIKE 'pool/%' THEN '' ELSE tenant END AS tenant, name AS key, -count(*) AS more
            FROM settled, jsonb_array_elements_text(slots::jsonb) name
            WHERE slots IS NOT NULL
            GROUP BY 1, 2)
        SELECT (SELECT array_agg(id) FROM settled), (SELECT jsonb_agg(to_jsonb(freed)) FROM freed)
        INTO done, freed_slots;
        IF coalesce(cardinality(done), 0) < cardinality(ids) THEN
            RAISE EXCEPTION 'some reports are not simple successes' USING ERRCODE = 'ND003', DETAIL = (
                SELECT json_agg(id)::text FROM unnest(ids) id WHERE id <> ALL (coalesce(done, '{}')));
        END IF;
    END IF;
    -- Slots are locked last but for the usage, and each is changed once.
    IF freed_slots IS NOT NULL OR w ? 'slots' THEN
        freed_slots := merge_slots(coalesce(freed_slots, '[]') || coalesce(w -> 'slots', '[]'));
        PERFORM lock_slots(freed_slots);
        PERFORM change_slots(freed_slots);
    END IF;
    -- After everything else that others may wait for: all recorders add to the same few rows.
    RETURN CASE WHEN counted IS NOT NULL THEN add_usage(counted, repeated) END;
END $$;

-- The `callers_` functions run in an application's own transaction, on its connection. Their settings hold while they run, whatever
-- the application has set. Parameters and results are text, because an application may have its own codec for jsonb.

-- Notify the schedulers of timeline rows, as arrays of the fields of an entry. They are notified when the transaction commits.
CREATE FUNCTION callers_notify(rows jsonb) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    -- No scheduler hints further ahead than two days.
    PERFORM pg_notify(left('noonday_' || current_schema(), 63),
                      jsonb_build_array(e.due_ms, e.key, e.kind, e.number, e.nominal_ms, e.partition, e.tenant, e.pool, e.lane,
                                        e.early, e.recurring)::text)
    FROM jsonb_populate_recordset(NULL::timeline, rows) e
    WHERE e.due_ms <= clock_ms() + 172800000;
END $$;

-- Add jobs with their fire rows and audit entries: all of them, or none if a unique key is taken. Returns NULL, or the keys that are
-- taken with the jobs that have them.
CREATE FUNCTION callers_add(rows text) RETURNS text LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    w constant jsonb := rows::jsonb;
    broken text;
BEGIN
    INSERT INTO jobs (tenant, id, revision, state, name, type, pool, handler, lane, unique_key, timeout_sec, heartbeat_sec,
                      deadline_sec, watch, anchor_ms, created_ms, updated_ms, trace, endpoint, halted, spec, payload)
    SELECT e.tenant, e.id, e.revision, e.state, e.name, e.type, e.pool, e.handler, e.lane, e.unique_key, e.timeout_sec,
           e.heartbeat_sec, e.deadline_sec, e.watch, e.anchor_ms, e.created_ms, e.updated_ms, e.trace, e.endpoint, e.halted, e.spec,
           decode(raw ->> 'payload', 'base64')
    FROM jsonb_array_elements(w -> 'jobs') raw CROSS JOIN LATERAL jsonb_populate_record(NULL::jobs, raw - 'payload') e;
    INSERT INTO timeline (due_ms, key, kind, number, nominal_ms, partition, tenant, pool, lane, early, recurring, runs_left,
                          ordering_key)
    SELECT e.due_ms, e.key, e.kind, e.number, e.nominal_ms, e.partition, e.tenant, e.pool, e.lane, e.early, e.recurring, e.runs_left,
           e.ordering_key
    FROM jsonb_populate_recordset(NULL::timeline, w -> 'timeline') e;
    INSERT INTO audit (tenant, at_ms, subject, action, target, detail)
    SELECT e.tenant, e.at_ms, e.subject, e.action, e.target, e.detail FROM jsonb_populate_recordset(NULL::audit, w -> 'audit') e;
    PERFORM callers_notify(w -> 'timeline');
    RETURN NULL;
EXCEPTION WHEN unique_violation THEN
    GET STACKED DIAGNOSTICS broken = CONSTRAINT_NAME;
    IF broken <> 'jobs_unique_key' THEN
        RAISE;
    END IF;
    RETURN (SELECT coalesce(jsonb_agg(jsonb_build_object('key', j.unique_key, 'job_id', j.id)), '[]')::text
            FROM jsonb_to_recordset(w -> 'jobs') e (tenant text, unique_key text)
                 JOIN jobs j ON j.tenant = e.tenant AND j.unique_key = e.unique_key);
END $$;

-- Return an execution and the inputs of its settlement: its version, the version of its job if that is watched, and the first open
-- executions if the job does not allow overlap.
CREATE FUNCTION callers_read(execution text) RETURNS text LANGUAGE sql SET search_path FROM CURRENT SET enable_seqscan = off AS $$
    SELECT jsonb_build_object(
        'rows', jsonb_build_array(versioned_json(x, x.xmin)),
        'jobs', (SELECT coalesce(jsonb_agg(job_version_json(j)), '[]')
                 FROM jobs j WHERE x.watch <> 0 AND j.tenant = x.tenant AND j.id = x.job_id),
        'open', (SELECT coalesce(jsonb_agg(execution_json(o, NULL, false) ORDER BY o.id), '[]')
                 FROM turns_of(x.job_id, 2, 1) turn JOIN executions o ON o.id = turn WHERE x.watch & 1 = 1))::text
    FROM executions x WHERE x.id = execution::uuid
$$;

-- Write what was decided from `callers_read`. Returns false, and writes nothing, if the rows have changed since.
CREATE FUNCTION callers_settle(writes text, now_ms bigint) RETURNS boolean LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    w constant jsonb := writes::jsonb;
BEGIN
    PERFORM apply_writes(w, now_ms);
    INSERT INTO unreported (execution_id)
    SELECT e.id FROM jsonb_to_recordset(w -> 'versions') e (id uuid) ON CONFLICT DO NOTHING;
    PERFORM callers_notify(coalesce(w -> 'timeline', '[]'));
    RETURN true;
EXCEPTION WHEN SQLSTATE 'ND002' THEN
    RETURN false;
END $$;
