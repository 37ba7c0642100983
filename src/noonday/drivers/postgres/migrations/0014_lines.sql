-- line: the concurrency key in whose order a fire has its turn, if in one.
ALTER TABLE timeline ADD COLUMN line text COLLATE "C";
CREATE INDEX timeline_line ON timeline (tenant, line, due_ms, key) WHERE line IS NOT NULL;

-- As before, with the line of what is put on the timeline.
-- Write what a ledger collected. Answers how many executions did not exist before.
CREATE OR REPLACE FUNCTION write_ledger(w jsonb, now_ms bigint) RETURNS bigint LANGUAGE plpgsql AS $$
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
        INSERT INTO timeline (due_ms, key, kind, number, nominal_ms, partition, tenant, pool, lane, staged, planned, runs_left,
                              line)
        SELECT (e ->> 0)::bigint, (e ->> 1)::uuid, (e ->> 2)::smallint, (e ->> 3)::integer, (e ->> 4)::bigint,
               (e ->> 5)::smallint, e ->> 6, e ->> 7, (e ->> 8)::smallint, (e ->> 9)::smallint, (e ->> 10)::smallint,
               (e ->> 11)::integer, e ->> 12
        FROM (SELECT DISTINCT ON (v ->> 1) v AS e FROM jsonb_array_elements(w -> 'put') WITH ORDINALITY AS rows (v, n)
              ORDER BY v ->> 1, n DESC) last
        ON CONFLICT (key) DO UPDATE
        SET due_ms = excluded.due_ms, kind = excluded.kind, number = excluded.number, nominal_ms = excluded.nominal_ms,
            pool = excluded.pool, lane = excluded.lane, staged = excluded.staged, planned = excluded.planned,
            runs_left = excluded.runs_left, line = excluded.line;
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

-- Tell the schedulers of rows of the timeline, as `put` in write_ledger. They hear of it when the transaction is committed.
CREATE OR REPLACE FUNCTION callers_tell(rows jsonb) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    -- Nobody hints further ahead than two days. The last elements, how many runs are left and the line, are not part of an entry.
    PERFORM pg_notify(left('noonday_' || current_schema(), 63), (e - 12 - 11)::text)
    FROM jsonb_array_elements(rows) e
    WHERE (e ->> 0)::bigint <= clock_ms() + 172800000;
END $$;

-- Add jobs: all of them, or none if a unique key is taken. said: jobs and fires as in add_jobs, audit [[tenant, ...]].
-- Answers nothing, or the keys that are taken: [[key, job]].
CREATE OR REPLACE FUNCTION callers_add(said text) RETURNS text LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    w constant jsonb := said::jsonb;
    broken text;
BEGIN
    INSERT INTO jobs (tenant, id, revision, state, name, type, pool, handler, lane, unique_key, timeout_sec, heartbeat_sec,
                      deadline_sec, watch, anchor_ms, created_ms, updated_ms, trace, endpoint, halted, spec, payload)
    SELECT e ->> 0, (e ->> 1)::uuid, (e ->> 2)::integer, (e ->> 3)::smallint, e ->> 4, e ->> 5, e ->> 6, e ->> 7,
           (e ->> 8)::smallint, e ->> 9, (e ->> 10)::float8, (e ->> 11)::float8, (e ->> 12)::float8, (e ->> 13)::smallint,
           (e ->> 14)::bigint, (e ->> 15)::bigint, (e ->> 16)::bigint, e ->> 17, e ->> 18, e ->> 19, e ->> 20,
           decode(e ->> 21, 'base64')
    FROM jsonb_array_elements(w -> 'jobs') e;
    INSERT INTO timeline (due_ms, key, kind, number, nominal_ms, partition, tenant, pool, lane, staged, planned, runs_left,
                          line)
    SELECT (e ->> 0)::bigint, (e ->> 1)::uuid, (e ->> 2)::smallint, (e ->> 3)::integer, (e ->> 4)::bigint, (e ->> 5)::smallint,
           e ->> 6, e ->> 7, (e ->> 8)::smallint, (e ->> 9)::smallint, (e ->> 10)::smallint, (e ->> 11)::integer, e ->> 12
    FROM jsonb_array_elements(w -> 'fires') e;
    INSERT INTO audit (tenant, at_ms, subject, action, target, detail)
    SELECT e ->> 0, (e ->> 1)::bigint, e ->> 2, e ->> 3, e ->> 4, e ->> 5 FROM jsonb_array_elements(w -> 'audit') e;
    PERFORM callers_tell(w -> 'fires');
    RETURN NULL;
EXCEPTION WHEN unique_violation THEN
    GET STACKED DIAGNOSTICS broken = CONSTRAINT_NAME;
    IF broken <> 'jobs_unique_key' THEN
        RAISE;
    END IF;
    RETURN (SELECT coalesce(jsonb_agg(jsonb_build_array(j.unique_key, j.id)), '[]')::text
            FROM jsonb_array_elements(w -> 'jobs') e JOIN jobs j ON j.tenant = e ->> 0 AND j.unique_key = e ->> 9);
END $$;
