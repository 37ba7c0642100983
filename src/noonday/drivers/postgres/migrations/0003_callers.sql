-- What an application does through a connection of its own, inside its own transaction. Its search_path and what its planner is
-- told are its own business: while one of these runs, those of this schema hold. What they take and give is plain text, for an
-- application may have taught its client to read jsonb in another way.

-- Tell the schedulers of rows of the timeline, as `put` in write_ledger. They hear of it when the transaction is committed.
CREATE FUNCTION callers_tell(rows jsonb) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    -- Nobody hints further ahead than two days. The last element, how many runs are left, is not part of an entry.
    PERFORM pg_notify(left('noonday_' || current_schema(), 63), (e - 11)::text)
    FROM jsonb_array_elements(rows) e
    WHERE (e ->> 0)::bigint <= clock_ms() + 172800000;
END $$;

-- Add jobs: all of them, or none if a unique key is taken. said: jobs and fires as in add_jobs, audit [[tenant, ...]].
-- Answers nothing, or the keys that are taken: [[key, job]].
CREATE FUNCTION callers_add(said text) RETURNS text LANGUAGE plpgsql
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
    INSERT INTO timeline (due_ms, key, kind, number, nominal_ms, partition, tenant, pool, lane, staged, planned, runs_left)
    SELECT (e ->> 0)::bigint, (e ->> 1)::uuid, (e ->> 2)::smallint, (e ->> 3)::integer, (e ->> 4)::bigint, (e ->> 5)::smallint,
           e ->> 6, e ->> 7, (e ->> 8)::smallint, (e ->> 9)::smallint, (e ->> 10)::smallint, (e ->> 11)::integer
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

-- What settling one execution looks at: [[execution, version]], and of a watched job [[tenant, job, touched, whether it is
-- paused]] and its open executions.
CREATE FUNCTION callers_look(execution text) RETURNS text LANGUAGE sql
SET search_path FROM CURRENT SET enable_seqscan = off AS $$
    SELECT jsonb_build_array(
        jsonb_build_array(jsonb_build_array(execution_json(x, NULL, false), x.xmin::text)),
        (SELECT coalesce(jsonb_agg(jsonb_build_array(j.tenant, j.id, j.touched, j.state = 1)), '[]')
         FROM jobs j WHERE x.watch <> 0 AND j.tenant = x.tenant AND j.id = x.job_id),
        (SELECT coalesce(jsonb_agg(execution_json(o, NULL, false) ORDER BY o.id), '[]')
         FROM executions o WHERE x.watch <> 0 AND o.job_id = x.job_id AND o.state < 2))::text
    FROM executions x WHERE x.id = execution::uuid
$$;

-- Write what was decided by callers_look. False if that is not so any more: nothing was written then.
CREATE FUNCTION callers_settle(said text, now_ms bigint) RETURNS boolean LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    w constant jsonb := said::jsonb;
BEGIN
    PERFORM apply_ledger(w, now_ms);
    INSERT INTO unreported (execution_id) SELECT (e ->> 0)::uuid FROM jsonb_array_elements(w -> 'rows') e ON CONFLICT DO NOTHING;
    PERFORM callers_tell(coalesce(w -> 'put', '[]'));
    RETURN true;
EXCEPTION WHEN SQLSTATE 'ND002' THEN
    RETURN false;
END $$;

-- The pools that exist.
CREATE FUNCTION callers_pools() RETURNS text LANGUAGE sql SET search_path FROM CURRENT AS $$
    SELECT coalesce(json_agg(name ORDER BY name), '[]')::text FROM pools
$$;

-- What workers say of a handler.
CREATE FUNCTION callers_handler(wanted_pool text, wanted text) RETURNS text LANGUAGE sql SET search_path FROM CURRENT AS $$
    SELECT info FROM handlers WHERE pool = wanted_pool AND name = wanted
$$;

-- A tenant's settings.
CREATE FUNCTION callers_tenant(wanted text) RETURNS text LANGUAGE sql SET search_path FROM CURRENT AS $$
    SELECT settings FROM tenants WHERE id = wanted
$$;

-- How many jobs of a tenant wait, as `jobs_waiting`; those of this very transaction too.
CREATE FUNCTION callers_waiting(wanted text, most bigint) RETURNS bigint LANGUAGE sql
SET search_path FROM CURRENT SET enable_seqscan = off AS $$
    WITH timed AS MATERIALIZED (
        SELECT count(*) AS jobs
        FROM (SELECT 1 FROM timeline t
              WHERE (t.tenant, t.due_ms) >= (wanted, 0) AND (t.tenant, t.due_ms) <= (wanted, 9223372036854775807) AND t.kind = 0
              ORDER BY t.tenant, t.due_ms LIMIT most) page
    )
    SELECT least(most, timed.jobs + CASE WHEN timed.jobs >= most THEN 0 ELSE (
        SELECT count(*)
        FROM (SELECT t.key FROM timeline t WHERE t.tenant = wanted AND t.due_ms IS NULL AND t.kind = 0
              LIMIT greatest(most, 10000)) timeless
        WHERE EXISTS (SELECT 1 FROM jobs j WHERE j.tenant = wanted AND j.id = timeless.key AND j.state = 1 OFFSET 0)
    ) END)
    FROM timed
$$;

-- When the next one-shot of a tenant is due, as `next_one_shot`.
CREATE FUNCTION callers_next_one_shot(wanted text) RETURNS bigint LANGUAGE sql
SET search_path FROM CURRENT SET enable_seqscan = off AS $$
    SELECT t.due_ms
    FROM (SELECT * FROM timeline t
          WHERE (t.tenant, t.due_ms) >= (wanted, 0) AND (t.tenant, t.due_ms) <= (wanted, 9223372036854775807)
          ORDER BY t.tenant, t.due_ms LIMIT 1000) t
    WHERE t.kind = 0
          AND EXISTS (SELECT 1 FROM jobs j
                      WHERE j.tenant = t.tenant AND j.id = t.key AND j.type IN ('ONE_TIME', 'DELAYED') OFFSET 0)
    ORDER BY t.tenant, t.due_ms LIMIT 1
$$;
