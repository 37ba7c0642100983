-- One order of locks everywhere: jobs, timeline, executions, slots, each by key. Whoever fires waits for no lock at all: entries of
-- jobs and slots that another transaction holds come back. Retention locks, looks again, and drops.
--
-- Besides the codes in 0002_functions.sql: ND005 some slots are locked by another transaction, named in the detail.

-- Lock the jobs that decide, then the fire rows that get runs back. w as in check_unchanged, and runs [[job, how many]].
CREATE FUNCTION lock_decided(w jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF w ? 'jobs' THEN
        PERFORM 1 FROM jsonb_array_elements(w -> 'jobs') e JOIN jobs j ON j.tenant = e ->> 0 AND j.id = (e ->> 1)::uuid
        ORDER BY j.tenant, j.id FOR UPDATE OF j;
    END IF;
    IF w ? 'runs' THEN
        PERFORM 1 FROM jsonb_array_elements(w -> 'runs') e JOIN timeline t ON t.key = (e ->> 0)::uuid
        ORDER BY t.key FOR UPDATE OF t;
    END IF;
END $$;

-- As before; and runs are given back to `maxRuns` here, because the timeline comes before executions.
-- Lock what a decision was made by, in the order jobs, timeline, executions, slots, and see that it is still so.
CREATE OR REPLACE FUNCTION check_unchanged(w jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    sound bigint;
BEGIN
    IF w ? 'jobs' THEN
        SELECT count(*) INTO sound FROM (
            SELECT 1 FROM jsonb_array_elements(w -> 'jobs') e
            JOIN jobs j ON j.tenant = e ->> 0 AND j.id = (e ->> 1)::uuid
            WHERE j.touched = (e ->> 2)::integer
            ORDER BY j.tenant, j.id FOR UPDATE OF j) locked;
        IF sound < jsonb_array_length(w -> 'jobs') THEN
            RAISE EXCEPTION 'a job was touched' USING ERRCODE = 'ND002';
        END IF;
    END IF;
    IF w ? 'runs' THEN
        PERFORM lock_decided(jsonb_build_object('runs', w -> 'runs'));
        UPDATE timeline t SET runs_left = t.runs_left + (e ->> 1)::integer FROM jsonb_array_elements(w -> 'runs') e
        WHERE t.key = (e ->> 0)::uuid AND t.runs_left IS NOT NULL;
    END IF;
    IF w ? 'rows' THEN
        -- The lock first, the look in a later statement.
        PERFORM 1 FROM jsonb_array_elements(w -> 'rows') e JOIN executions x ON x.id = (e ->> 0)::uuid
        ORDER BY x.id FOR UPDATE OF x;
        SELECT count(*) INTO sound
        FROM jsonb_array_elements(w -> 'rows') e JOIN executions x ON x.id = (e ->> 0)::uuid
        WHERE x.xmin::text = e ->> 1;
        IF sound < jsonb_array_length(w -> 'rows') THEN
            RAISE EXCEPTION 'an execution was touched' USING ERRCODE = 'ND002';
        END IF;
    END IF;
END $$;

-- Lock the slots that exist of some changes, as in write_ledger.
CREATE FUNCTION lock_slots(changes jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF changes IS NOT NULL THEN
        PERFORM 1 FROM jsonb_array_elements(changes) e JOIN slots s ON s.tenant = e ->> 0 AND s.key = e ->> 1
        ORDER BY s.tenant, s.key FOR UPDATE OF s;
    END IF;
END $$;

-- What was decided, if what it was decided by is unchanged.
CREATE OR REPLACE FUNCTION apply_ledger(w jsonb, now_ms bigint) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    PERFORM check_unchanged(w);
    PERFORM lock_slots(w -> 'slots');
    RETURN write_ledger(w, now_ms);
END $$;

-- As before, without waiting: entries of jobs that another transaction has locked are named like those that are stale (ND004),
-- and locked slots are named (ND005).
-- Fire entries that were planned: all of them, or none. w as in write_ledger and check_unchanged, and
-- shots [[key, number, nominal, job, whether it was planned by runs_left, runs_left]], members [[execution, due]]. Answers the batch.
CREATE OR REPLACE FUNCTION fire_planned(instance text, epochs bigint[], given_ms bigint, lead_ms bigint, w jsonb,
                                        OUT batch bigint) LANGUAGE plpgsql AS $$
DECLARE
    sound uuid[];
    own jsonb;
    left_out text;
    at_ms bigint;
BEGIN
    at_ms := coalesce(given_ms, clock_ms());
    IF w ? 'jobs' THEN
        SELECT coalesce(jsonb_object_agg(id, touched), '{}') INTO own FROM (
            SELECT j.id, j.touched FROM jsonb_array_elements(w -> 'jobs') e
            JOIN jobs j ON j.tenant = e ->> 0 AND j.id = (e ->> 1)::uuid
            ORDER BY j.tenant, j.id FOR UPDATE OF j SKIP LOCKED) locked;
        SELECT json_agg(e ->> 0)::text INTO left_out FROM jsonb_array_elements(w -> 'shots') e
        WHERE e ->> 3 IS NOT NULL AND NOT own ? (e ->> 3)
              AND EXISTS (SELECT 1 FROM jsonb_array_elements(w -> 'jobs') j WHERE j ->> 1 = e ->> 3);
        IF left_out IS NOT NULL THEN
            RAISE EXCEPTION 'some jobs are locked' USING ERRCODE = 'ND004', DETAIL = left_out;
        END IF;
        IF EXISTS (SELECT 1 FROM jsonb_array_elements(w -> 'jobs') j WHERE (own ->> (j ->> 1))::integer IS DISTINCT FROM (j ->> 2)::integer) THEN
            RAISE EXCEPTION 'a job was touched' USING ERRCODE = 'ND002';
        END IF;
    END IF;
    SELECT array_agg(key) INTO sound FROM (
        SELECT t.key FROM jsonb_array_elements(w -> 'shots') e
        JOIN timeline t ON t.key = (e ->> 0)::uuid
        JOIN partitions p ON p.partition = t.partition
        WHERE t.number = (e ->> 1)::integer AND t.nominal_ms = (e ->> 2)::bigint AND t.due_ms + 0 <= at_ms + lead_ms
              AND p.epoch = epochs[t.partition + 1]
              AND (NOT coalesce((e ->> 4)::boolean, false) OR t.runs_left IS NOT DISTINCT FROM (e ->> 5)::integer)
        ORDER BY t.key FOR UPDATE OF t SKIP LOCKED) locked;
    IF coalesce(cardinality(sound), 0) < jsonb_array_length(w -> 'shots') THEN
        RAISE EXCEPTION 'some entries are stale or locked' USING ERRCODE = 'ND004', DETAIL = coalesce(
            (SELECT json_agg(e ->> 0)::text FROM jsonb_array_elements(w -> 'shots') e
             WHERE (e ->> 0)::uuid <> ALL (coalesce(sound, '{}'))), '[]');
    END IF;
    IF w ? 'slots' THEN
        SELECT coalesce(jsonb_agg(jsonb_build_array(tenant, key)), '[]') INTO own FROM (
            SELECT s.tenant, s.key FROM jsonb_array_elements(w -> 'slots') e JOIN slots s ON s.tenant = e ->> 0 AND s.key = e ->> 1
            ORDER BY s.tenant, s.key FOR UPDATE OF s SKIP LOCKED) locked;
        SELECT jsonb_agg(jsonb_build_array(s.tenant, s.key))::text INTO left_out
        FROM jsonb_array_elements(w -> 'slots') e JOIN slots s ON s.tenant = e ->> 0 AND s.key = e ->> 1
        WHERE NOT own @> jsonb_build_array(jsonb_build_array(s.tenant, s.key));
        IF left_out IS NOT NULL THEN
            RAISE EXCEPTION 'some slots are locked' USING ERRCODE = 'ND005', DETAIL = left_out;
        END IF;
    END IF;
    PERFORM write_ledger(w, at_ms);
    IF jsonb_array_length(w -> 'members') > 0 THEN
        INSERT INTO batches (owner, fired_ms, members, dues)
        SELECT instance, at_ms, array_agg((e ->> 0)::uuid), array_agg((e ->> 1)::bigint)
        FROM jsonb_array_elements(w -> 'members') e
        RETURNING id INTO batch;
    END IF;
END $$;

-- As before, with executions locked in the order of their ids.
-- Settle a batch of the log: move the place, settle plain successes, write what was decided of the rest, add what was used, as in
-- add_usage.
CREATE OR REPLACE FUNCTION settle(log_partition integer, was_era text, was_next bigint, now_era text, now_next bigint,
                                  now_tick_ms bigint, now_recent text, ids uuid[], dispatches integer[], workers_ text[],
                                  started bigint[], ended bigint[], results bytea[], said bytea[], w jsonb, now_ms bigint,
                                  counted jsonb, said_again jsonb)
RETURNS uuid[] LANGUAGE plpgsql AS $$
DECLARE
    done uuid[];
    let_go jsonb;
BEGIN
    IF was_era IS NULL THEN
        INSERT INTO places (partition, era, next, tick_ms, recent)
        VALUES (log_partition, now_era, now_next, now_tick_ms, now_recent)
        ON CONFLICT DO NOTHING;
    ELSE
        UPDATE places SET era = now_era, next = now_next, tick_ms = now_tick_ms, recent = now_recent
        WHERE partition = log_partition AND era = was_era AND next = was_next;
    END IF;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'somebody else records this partition' USING ERRCODE = 'ND001';
    END IF;
    IF w IS NOT NULL THEN
        IF cardinality(ids) > 0 THEN
            -- Both kinds together in the order of ids: each by itself would be two orders.
            PERFORM lock_decided(w);
            PERFORM 1 FROM executions x
            WHERE x.id = ANY (ids || ARRAY(SELECT (e ->> 0)::uuid FROM jsonb_array_elements(coalesce(w -> 'rows', '[]')) e))
            ORDER BY x.id FOR UPDATE;
        END IF;
        PERFORM check_unchanged(w);
        PERFORM write_ledger(w - 'slots', now_ms);
    END IF;
    IF cardinality(ids) > 0 THEN
        WITH settled AS (
            UPDATE executions x
            SET state = 5, worker_id = e.worker, started_ms = CASE WHEN state = 0 THEN e.started ELSE started_ms END,
                finished_ms = e.ended, failure = NULL, result = e.result, progress = coalesce(e.said, progress),
                moves = moves || CASE WHEN state = 0 THEN ',[1,' || e.started || ',"' || e.worker || '"]' ELSE '' END
                              || ',[5,' || e.ended || ']'
            -- Rows are updated, and so locked, in this order.
            FROM (SELECT * FROM unnest(ids, dispatches, workers_, started, ended, results, said)
                               AS u (id, dispatch, worker, started, ended, result, said)
                  ORDER BY u.id) e
            WHERE x.id = e.id AND x.dispatch = e.dispatch AND x.state + 0 < 2 AND x.fired_ms IS NOT NULL AND x.watch = 0
                  AND (x.worker_id IS NULL OR x.worker_id = e.worker)
            RETURNING x.id, x.tenant, x.slots),
        freed AS (
            SELECT CASE WHEN name LIKE 'pool/%' THEN '' ELSE tenant END AS tenant, name, -count(*) AS more
            FROM settled, jsonb_array_elements_text(slots::jsonb) name
            WHERE slots IS NOT NULL
            GROUP BY 1, 2)
        SELECT (SELECT array_agg(id) FROM settled), (SELECT jsonb_agg(jsonb_build_array(tenant, name, more, NULL)) FROM freed)
        INTO done, let_go;
        IF coalesce(cardinality(done), 0) < cardinality(ids) THEN
            RAISE EXCEPTION 'some are not plain successes' USING ERRCODE = 'ND003', DETAIL = (
                SELECT json_agg(id)::text FROM unnest(ids) id WHERE id <> ALL (coalesce(done, '{}')));
        END IF;
    END IF;
    -- Slots are locked last but for the usage, and each is changed once.
    IF let_go IS NOT NULL OR w ? 'slots' THEN
        let_go := merge_slots(coalesce(let_go, '[]') || coalesce(w -> 'slots', '[]'));
        PERFORM lock_slots(let_go);
        PERFORM write_ledger(jsonb_build_object('slots', let_go), now_ms);
    END IF;
    -- After everything else that others may wait for: all recorders add to the same few rows.
    RETURN CASE WHEN counted IS NOT NULL THEN add_usage(counted, said_again) END;
END $$;

-- As before, with all executions locked first, in the order of their ids.
-- The caps of a tenant, or of a pool (whose owner is nobody): those that are not named again are none any more. What is handed out
-- at present and counts against a new one is counted. of_pools: NULL if it is in whatever pool.
CREATE OR REPLACE FUNCTION set_caps(owner text, names text[], of_pools text[], caps integer[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    marked integer;
    counts integer[] := '{}';
BEGIN
    PERFORM 1 FROM executions x
    WHERE x.state < 2 AND x.fired_ms IS NOT NULL AND (owner = '' OR x.tenant = owner)
          AND EXISTS (SELECT 1 FROM unnest(names, of_pools, caps) c (name, pool, cap)
                      WHERE c.cap IS NOT NULL AND (c.pool IS NULL OR x.pool = c.pool)
                            AND NOT coalesce(x.slots::jsonb ? c.name, false))
    ORDER BY x.id FOR UPDATE;
    FOR i IN 1 .. cardinality(names) LOOP
        marked := 0;
        IF caps[i] IS NOT NULL THEN
            WITH handed_out AS MATERIALIZED (
                SELECT x.id FROM executions x
                WHERE x.state < 2 AND x.fired_ms IS NOT NULL AND (owner = '' OR x.tenant = owner)
                      AND (of_pools[i] IS NULL OR x.pool = of_pools[i]) AND NOT coalesce(x.slots::jsonb ? names[i], false)
                ORDER BY x.id FOR UPDATE)
            UPDATE executions x SET slots = (coalesce(x.slots::jsonb, '[]') || to_jsonb(names[i]))::text
            FROM handed_out h WHERE x.id = h.id;
            GET DIAGNOSTICS marked = ROW_COUNT;
        END IF;
        counts := counts || marked;
    END LOOP;
    -- Slots are locked last.
    PERFORM 1 FROM slots WHERE tenant = owner AND (owner <> '' OR key = ANY (names)) ORDER BY key FOR UPDATE;
    UPDATE slots SET cap = NULL WHERE tenant = owner AND (owner <> '' OR key = ANY (names));
    INSERT INTO slots (tenant, key, used, cap)
    SELECT owner, e.name, e.n, e.cap FROM unnest(names, counts, caps) e (name, n, cap) WHERE e.cap IS NOT NULL ORDER BY e.name
    ON CONFLICT (tenant, key) DO UPDATE SET used = slots.used + excluded.used, cap = excluded.cap;
    DELETE FROM slots WHERE tenant = owner AND (owner <> '' OR key = ANY (names)) AND used <= 0 AND cap IS NULL;
END $$;

-- Partitions of days that ended before an instant go when nothing is left in them. Nobody waits long for this: it gives up after a
-- moment, and is done another time.
CREATE OR REPLACE FUNCTION drop_partitions(before_ms bigint) RETURNS integer LANGUAGE plpgsql SET lock_timeout = '500ms' AS $$
DECLARE
    dropped integer := 0;
    called text;
    used boolean;
BEGIN
    FOR called IN
        SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'executions'::regclass AND c.relname ~ '^executions_\d{8}$'
              AND c.relname < 'executions_' || to_char(to_timestamp(before_ms / 1000) AT TIME ZONE 'UTC', 'YYYYMMDD')
        ORDER BY 1
    LOOP
        EXECUTE format('SELECT EXISTS (SELECT 1 FROM %I)', called) INTO used;
        CONTINUE WHEN used;
        -- An execution of that day may be on its way, such as a retry of a dead letter. In the order in which a writer locks.
        EXECUTE format('LOCK TABLE ONLY executions, ONLY %I IN ACCESS EXCLUSIVE MODE', called);
        EXECUTE format('SELECT EXISTS (SELECT 1 FROM %I)', called) INTO used;
        CONTINUE WHEN used;
        EXECUTE format('DROP TABLE %I', called);
        dropped := dropped + 1;
    END LOOP;
    RETURN dropped;
END $$;

-- Drop jobs that ended before an instant and have nothing left, with what they once said and their timeless fire rows. A job that
-- somebody else has locked stays: it may be triggered at this moment. Answers how many went.
CREATE FUNCTION drop_ended_jobs(tenants text[], ids uuid[], before_ms bigint[]) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    mine uuid[];
    gone uuid[];
BEGIN
    SELECT array_agg(id) INTO mine FROM (
        SELECT j.id FROM unnest(tenants, ids) e (tenant, id) JOIN jobs j ON j.tenant = e.tenant AND j.id = e.id
        ORDER BY j.tenant, j.id FOR UPDATE OF j SKIP LOCKED) locked;
    -- The lock first, the look in a later statement.
    WITH dropped AS (
        DELETE FROM jobs j USING unnest(tenants, ids, before_ms) e (tenant, id, before_ms)
        WHERE j.tenant = e.tenant AND j.id = e.id AND j.id = ANY (mine) AND j.updated_ms < e.before_ms AND j.state <> 1
              AND (j.state = 2 OR NOT EXISTS (SELECT 1 FROM timeline t WHERE t.key = j.id AND t.due_ms IS NOT NULL OFFSET 0))
              AND NOT EXISTS (SELECT 1 FROM executions x WHERE x.job_id = j.id OFFSET 0)
        RETURNING j.id)
    SELECT array_agg(id) INTO gone FROM dropped;
    DELETE FROM revisions r USING unnest(gone) e (id) WHERE r.job_id = e.id;
    DELETE FROM timeline t USING unnest(gone) e (id) WHERE t.key = e.id;
    RETURN coalesce(cardinality(gone), 0);
END $$;
