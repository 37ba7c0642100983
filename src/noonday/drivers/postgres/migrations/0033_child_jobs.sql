-- The jobs that handlers have enqueued, until they are created: one row for each dispatch that enqueued any.
CREATE TABLE child_jobs (
    tenant       text COLLATE "C" NOT NULL,
    execution_id uuid NOT NULL,
    dispatch     integer NOT NULL,
    job_id       uuid NOT NULL,
    jobs         integer NOT NULL,
    children     bytea NOT NULL,
    PRIMARY KEY (tenant, execution_id, dispatch)
);

-- Write a write set. Returns how many of its new executions did not exist.
CREATE OR REPLACE FUNCTION write_rows(w jsonb, now_ms bigint) RETURNS bigint LANGUAGE plpgsql AS $$
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
    IF w ? 'children' THEN
        INSERT INTO child_jobs (tenant, execution_id, dispatch, job_id, jobs, children)
        SELECT e.tenant, e.execution_id, e.dispatch, e.job_id, e.jobs, decode(e.children, 'base64')
        FROM jsonb_to_recordset(w -> 'children')
             e (tenant text, execution_id uuid, dispatch integer, job_id uuid, jobs integer, children text)
        ON CONFLICT DO NOTHING;
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

-- Return the names of the handlers of a pool, up to a limit.
CREATE FUNCTION callers_handler_names(wanted_pool text, most bigint) RETURNS text LANGUAGE sql SET search_path FROM CURRENT AS $$
    SELECT coalesce(json_agg(name ORDER BY name), '[]')::text
    FROM (SELECT name FROM handlers WHERE pool = wanted_pool ORDER BY pool, name LIMIT most) named
$$;
