-- What must happen in one round trip, so that nobody's locks wait for a client to think.
--
-- Whoever calls one of these may be told to look again: ND001 the recorder's place is another one; ND002 rows are not what they
-- were when they were read; ND003 some reports are not plain successes; ND004 some entries are not what the timeline has, or
-- are locked. The last two name the ids in the detail. Nothing was written then.
--
-- `+ 0` keeps the planner from a partial or ordered index that looks small while it believes that a table is: rows are looked up
-- by their keys.

CREATE FUNCTION clock_ms() RETURNS bigint LANGUAGE sql VOLATILE
RETURN floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint;

CREATE FUNCTION base64(data bytea) RETURNS text LANGUAGE sql IMMUTABLE
RETURN translate(encode(data, 'base64'), E'\n', '');

-- An execution as the array that `Execution` is encoded as. The last element is the row's version.
CREATE FUNCTION execution_json(x executions, waits_until_ms bigint, whole boolean) RETURNS jsonb LANGUAGE sql STABLE
RETURN jsonb_build_array(x.id, x.job_id, x.tenant, x.nominal_ms, x.due_ms, x.state, x.attempt, x.dispatch, x.revision, x.cause,
                         x.pool, x.handler, x.lane, x.created_ms, x.fired_ms, x.buffered, x.watch,
                         CASE WHEN x.state < 2 AND x.slots IS NOT NULL THEN x.slots::jsonb ELSE '[]' END, waits_until_ms,
                         x.worker_id, x.started_ms, x.finished_ms, x.cancel, x.failure,
                         CASE WHEN whole THEN base64(x.progress) END, CASE WHEN whole THEN base64(x.result) END, x.retry_of,
                         CASE WHEN whole THEN x.moves ELSE '' END);

-- A job as the array that `Job` is encoded as.
CREATE FUNCTION job_json(j jobs, with_payload boolean) RETURNS jsonb LANGUAGE sql STABLE
RETURN jsonb_build_array(j.id, j.tenant, j.revision, j.state, j.spec::jsonb, j.anchor_ms,
                         CASE WHEN with_payload THEN base64(j.payload) END, j.created_ms, j.updated_ms, j.trace, j.halted);

-- Where there may be a cap on what a tenant runs in a pool.
CREATE FUNCTION capped_by(of_tenant text, of_pool text) RETURNS TABLE (tenant text, key text) LANGUAGE sql IMMUTABLE
AS $$ VALUES (of_tenant, 'tenant'), (of_tenant, 'tenant/' || of_pool), ('', 'pool/' || of_pool) $$;

-- Lock what a decision was made by, in the order jobs, timeline, executions, slots, and see that it is still so.
-- w: jobs [[tenant, id, touched]], rows [[execution, version]], slots [[tenant, key, more, limit, or null if the row has it]].
CREATE FUNCTION check_unchanged(w jsonb) RETURNS void LANGUAGE plpgsql AS $$
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

-- Changes of slots, as in check_unchanged, each of which is named once.
CREATE FUNCTION merge_slots(changes jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE
RETURN (SELECT jsonb_agg(jsonb_build_array(tenant, key, more, most))
        FROM (SELECT e ->> 0 AS tenant, e ->> 1 AS key, sum((e ->> 2)::integer) AS more, min((e ->> 3)::integer) AS most
              FROM jsonb_array_elements(changes) e GROUP BY 1, 2) merged);

-- Write what a ledger collected. Answers how many executions did not exist before.
CREATE FUNCTION write_ledger(w jsonb, now_ms bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    created bigint := 0;
    made uuid[];
    full_slots bigint;
BEGIN
    IF w ? 'new' THEN
        WITH inserted AS (
        INSERT INTO executions (id, job_id, tenant, nominal_ms, due_ms, state, attempt, dispatch, revision, cause, pool, handler,
                                lane, watch, created_ms, fired_ms, buffered, retry_of, slots, moves)
        SELECT (e ->> 0)::uuid, j.id, j.tenant, (e ->> 3)::bigint, (e ->> 4)::bigint, 0, 1, 1, j.revision, (e ->> 5)::smallint,
               j.pool, j.handler, j.lane, j.watch, now_ms, CASE WHEN e ->> 6 IS NOT NULL THEN now_ms END, (e ->> 7)::smallint, (e ->> 8)::uuid, e ->> 9,
               '[0,' || now_ms || ']'
        FROM jsonb_array_elements(w -> 'new') e JOIN jobs j ON j.tenant = e ->> 1 AND j.id = (e ->> 2)::uuid
        ORDER BY 1
        ON CONFLICT DO NOTHING
        RETURNING id)
        SELECT count(*), array_agg(id) INTO created, made FROM inserted;
        IF w ? 'slots' AND created < jsonb_array_length(w -> 'new') THEN
            -- Those that exist already hold what they hold.
            w := jsonb_set(w, '{slots}', merge_slots((w -> 'slots') || coalesce((
                SELECT jsonb_agg(jsonb_build_array(CASE WHEN name LIKE 'pool/%' THEN '' ELSE e ->> 1 END, name, -1, NULL))
                FROM jsonb_array_elements(w -> 'new') e CROSS JOIN LATERAL jsonb_array_elements_text(e -> 9) name
                WHERE jsonb_typeof(e -> 9) = 'array' AND (e ->> 0)::uuid <> ALL (coalesce(made, '{}'))), '[]')));
        END IF;
    END IF;
    IF w ? 'again' THEN
        UPDATE executions x SET fired_ms = now_ms, slots = e ->> 1
        FROM jsonb_array_elements(w -> 'again') e
        WHERE x.id = (e ->> 0)::uuid AND x.state + 0 = 0;
    END IF;
    IF w ? 'set' THEN
        UPDATE executions x
        SET state = (e ->> 1)::smallint, attempt = (e ->> 2)::integer, dispatch = (e ->> 3)::integer,
            revision = (e ->> 4)::integer, fired_ms = (e ->> 5)::bigint, buffered = (e ->> 6)::smallint, worker_id = e ->> 7,
            started_ms = (e ->> 8)::bigint, finished_ms = (e ->> 9)::bigint, cancel = e ->> 10, failure = e ->> 11,
            progress = coalesce(decode(e ->> 12, 'base64'), progress), result = decode(e ->> 13, 'base64'), slots = e ->> 14,
            pool = e ->> 15, handler = e ->> 16, lane = (e ->> 17)::smallint, watch = (e ->> 18)::smallint,
            moves = moves || (e ->> 19)
        -- A row may be settled twice in one ledger: the last one counts, and all moves.
        FROM (SELECT jsonb_set(last, '{19}', to_jsonb(said)) AS e
              FROM (SELECT (array_agg(v ORDER BY n DESC))[1] AS last, string_agg(v ->> 19, '' ORDER BY n) AS said
                    FROM jsonb_array_elements(w -> 'set') WITH ORDINALITY AS rows (v, n) GROUP BY v ->> 0) grouped) settled
        WHERE x.id = (e ->> 0)::uuid;
    END IF;
    IF w ? 'wish' THEN
        UPDATE executions x SET cancel = e ->> 1 FROM jsonb_array_elements(w -> 'wish') e WHERE x.id = (e ->> 0)::uuid;
    END IF;
    IF w ? 'drop' THEN
        DELETE FROM timeline WHERE key IN (SELECT value::uuid FROM jsonb_array_elements_text(w -> 'drop'));
    END IF;
    IF w ? 'put' THEN
        INSERT INTO timeline (due_ms, key, kind, number, nominal_ms, partition, tenant, pool, lane, staged, planned, runs_left)
        SELECT (e ->> 0)::bigint, (e ->> 1)::uuid, (e ->> 2)::smallint, (e ->> 3)::integer, (e ->> 4)::bigint,
               (e ->> 5)::smallint, e ->> 6, e ->> 7, (e ->> 8)::smallint, (e ->> 9)::smallint, (e ->> 10)::smallint,
               (e ->> 11)::integer
        FROM (SELECT DISTINCT ON (v ->> 1) v AS e FROM jsonb_array_elements(w -> 'put') WITH ORDINALITY AS rows (v, n)
              ORDER BY v ->> 1, n DESC) last
        ON CONFLICT (key) DO UPDATE
        SET due_ms = excluded.due_ms, kind = excluded.kind, number = excluded.number, nominal_ms = excluded.nominal_ms,
            pool = excluded.pool, lane = excluded.lane, staged = excluded.staged, planned = excluded.planned,
            runs_left = excluded.runs_left;
    END IF;
    IF w ? 'decisions' THEN
        INSERT INTO decisions (job_id, from_ms, to_ms, count, outcome, reason, decided_ms)
        SELECT (e ->> 0)::uuid, (e ->> 1)::bigint, (e ->> 2)::bigint, (e ->> 3)::bigint, e ->> 4, e ->> 5, now_ms
        FROM jsonb_array_elements(w -> 'decisions') e
        ON CONFLICT DO NOTHING;
    END IF;
    IF w ? 'dead' THEN
        INSERT INTO dead (execution_id, tenant, job_id, pool, handler, died_ms)
        SELECT x.id, x.tenant, x.job_id, x.pool, x.handler, now_ms
        FROM jsonb_array_elements_text(w -> 'dead') e JOIN executions x ON x.id = e.value::uuid
        ON CONFLICT (execution_id) DO NOTHING;
    END IF;
    IF w ? 'incidents' THEN
        INSERT INTO incidents (kind, tenant, execution_id, job_id, message, at_ms)
        SELECT e ->> 0, e ->> 1, (e ->> 2)::uuid, (e ->> 3)::uuid, e ->> 4, now_ms FROM jsonb_array_elements(w -> 'incidents') e;
    END IF;
    IF w ? 'slots' THEN
        INSERT INTO slots (tenant, key, used)
        SELECT e ->> 0, e ->> 1, (e ->> 2)::integer FROM jsonb_array_elements(w -> 'slots') e ORDER BY 1, 2
        ON CONFLICT (tenant, key) DO UPDATE SET used = greatest(0, slots.used + excluded.used);
        SELECT count(*) INTO full_slots
        FROM jsonb_array_elements(w -> 'slots') e JOIN slots s ON s.tenant = e ->> 0 AND s.key = e ->> 1
        WHERE (e ->> 2)::integer > 0 AND s.used > coalesce((e ->> 3)::integer, s.cap);
        IF full_slots > 0 THEN
            RAISE EXCEPTION 'there is no free slot any more' USING ERRCODE = 'ND002';
        END IF;
        DELETE FROM slots s USING jsonb_array_elements(w -> 'slots') e
        WHERE s.tenant = e ->> 0 AND s.key = e ->> 1 AND s.used <= 0 AND s.cap IS NULL;
    END IF;
    IF w ? 'touched' THEN
        UPDATE jobs j SET touched = touched + 1 FROM jsonb_array_elements(w -> 'touched') e
        WHERE j.tenant = e ->> 0 AND j.id = (e ->> 1)::uuid;
    END IF;
    RETURN created;
END $$;

-- Fire entries that were planned: all of them, or none. w as in write_ledger and check_unchanged, and
-- shots [[key, number, nominal]], members [[execution, due]]. Answers the batch.
CREATE FUNCTION fire_planned(instance text, epochs bigint[], given_ms bigint, lead_ms bigint, w jsonb,
                             OUT batch bigint) LANGUAGE plpgsql AS $$
DECLARE
    sound uuid[];
    at_ms bigint;
BEGIN
    at_ms := coalesce(given_ms, clock_ms());
    PERFORM check_unchanged(w);
    SELECT array_agg(key) INTO sound FROM (
        SELECT t.key FROM jsonb_array_elements(w -> 'shots') e
        JOIN timeline t ON t.key = (e ->> 0)::uuid
        JOIN partitions p ON p.partition = t.partition
        WHERE t.number = (e ->> 1)::integer AND t.nominal_ms = (e ->> 2)::bigint AND t.due_ms + 0 <= at_ms + lead_ms
              AND p.epoch = epochs[t.partition + 1]
        ORDER BY t.key FOR UPDATE OF t SKIP LOCKED) locked;
    IF coalesce(cardinality(sound), 0) < jsonb_array_length(w -> 'shots') THEN
        RAISE EXCEPTION 'some entries are stale or locked' USING ERRCODE = 'ND004', DETAIL = coalesce(
            (SELECT json_agg(e ->> 0)::text FROM jsonb_array_elements(w -> 'shots') e
             WHERE (e ->> 0)::uuid <> ALL (coalesce(sound, '{}'))), '[]');
    END IF;
    PERFORM write_ledger(w, at_ms);
    IF jsonb_array_length(w -> 'members') > 0 THEN
        INSERT INTO batches (owner, fired_ms, members, dues)
        SELECT instance, at_ms, array_agg((e ->> 0)::uuid), array_agg((e ->> 1)::bigint)
        FROM jsonb_array_elements(w -> 'members') e
        RETURNING id INTO batch;
    END IF;
END $$;

-- Add to what tenants have used: counted [[tenant, day, runs, succeeded, failed, run_ms, payload_bytes]]; said_again [[execution,
-- tenant, ...]], of successes that were settled before, counts for those that nobody has reported yet. Answers which these are.
CREATE FUNCTION add_usage(counted jsonb, said_again jsonb) RETURNS uuid[] LANGUAGE plpgsql AS $$
DECLARE
    told uuid[];
BEGIN
    IF jsonb_array_length(said_again) > 0 THEN
        WITH gone AS (
            DELETE FROM unreported u USING jsonb_array_elements(said_again) e WHERE u.execution_id = (e ->> 0)::uuid
            RETURNING u.execution_id, e - 0 AS used)
        SELECT array_agg(execution_id), counted || coalesce(jsonb_agg(used), '[]') INTO told, counted FROM gone;
    END IF;
    INSERT INTO usage (tenant, day, runs, succeeded, failed, run_ms, payload_bytes)
    SELECT e ->> 0, (e ->> 1)::bigint, sum((e ->> 2)::bigint), sum((e ->> 3)::bigint), sum((e ->> 4)::bigint),
           sum((e ->> 5)::bigint), sum((e ->> 6)::bigint)
    FROM jsonb_array_elements(counted) e GROUP BY 1, 2 ORDER BY (e ->> 0) COLLATE "C", 2
    ON CONFLICT (tenant, day) DO UPDATE
    SET runs = usage.runs + excluded.runs, succeeded = usage.succeeded + excluded.succeeded,
        failed = usage.failed + excluded.failed, run_ms = usage.run_ms + excluded.run_ms,
        payload_bytes = usage.payload_bytes + excluded.payload_bytes;
    RETURN told;
END $$;

-- Settle a batch of the log: move the place, settle plain successes, write what was decided of the rest, add what was used, as in
-- add_usage.
CREATE FUNCTION settle(log_partition integer, was_era text, was_next bigint, now_era text, now_next bigint, now_tick_ms bigint, now_recent text,
                       ids uuid[], dispatches integer[], workers_ text[], started bigint[], ended bigint[],
                       results bytea[], said bytea[], w jsonb, now_ms bigint, counted jsonb, said_again jsonb)
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
            FROM unnest(ids, dispatches, workers_, started, ended, results, said)
                 AS e (id, dispatch, worker, started, ended, result, said)
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
        PERFORM write_ledger(jsonb_build_object(
            'slots', merge_slots(coalesce(let_go, '[]') || coalesce(w -> 'slots', '[]'))), now_ms);
    END IF;
    -- After everything else that others may wait for: all recorders add to the same few rows.
    RETURN CASE WHEN counted IS NOT NULL THEN add_usage(counted, said_again) END;
END $$;

-- Partitions of `executions` for whole days, made ahead. A day of which the default partition has rows stays there.
CREATE FUNCTION make_partitions(from_ms bigint, days integer) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    made integer := 0;
    day_ms constant bigint := 86400000;
    first_ms bigint;
    lower_id uuid;
    upper_id uuid;
    called text;
BEGIN
    FOR n IN 0 .. days - 1 LOOP
        first_ms := (from_ms / day_ms + n) * day_ms;
        called := 'executions_' || to_char(to_timestamp(first_ms / 1000) AT TIME ZONE 'UTC', 'YYYYMMDD');
        CONTINUE WHEN to_regclass(called) IS NOT NULL;
        lower_id := (lpad(to_hex(first_ms), 12, '0') || '00000000000000000000')::uuid;
        upper_id := (lpad(to_hex(first_ms + day_ms), 12, '0') || '00000000000000000000')::uuid;
        CONTINUE WHEN EXISTS (SELECT 1 FROM executions_default WHERE id >= lower_id AND id < upper_id);
        EXECUTE format('CREATE TABLE %I PARTITION OF executions FOR VALUES FROM (%L) TO (%L) WITH (fillfactor = 90, '
                       'autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 0)', called, lower_id, upper_id);
        made := made + 1;
    END LOOP;
    RETURN made;
END $$;

-- Partitions of days that ended before an instant go when nothing is left in them.
CREATE FUNCTION drop_partitions(before_ms bigint) RETURNS integer LANGUAGE plpgsql AS $$
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
        EXECUTE format('DROP TABLE %I', called);
        dropped := dropped + 1;
    END LOOP;
    RETURN dropped;
END $$;

-- What was decided, if what it was decided by is unchanged.
CREATE FUNCTION apply_ledger(w jsonb, now_ms bigint) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    PERFORM check_unchanged(w);
    RETURN write_ledger(w, now_ms);
END $$;

-- The caps of a tenant, or of a pool (whose owner is nobody): those that are not named again are none any more. What is handed out
-- at present and counts against a new one is counted. of_pools: NULL if it is in whatever pool.
CREATE FUNCTION set_caps(owner text, names text[], of_pools text[], caps integer[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    marked integer;
    counts integer[] := '{}';
BEGIN
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
