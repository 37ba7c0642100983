-- Open executions of jobs that do not allow overlap: the first one whose turn it is, and the first one that is buffered.
CREATE INDEX executions_turns ON executions (job_id, buffered, id) WHERE state < 2 AND watch & 1 = 1;

-- Lock fire rows and dispatch rows by their keys, then the executions among the keys. A settlement may have put a dispatch row on
-- the timeline between the two. That row is locked only if nobody has it, because its holder may wait for one of these executions.
CREATE FUNCTION lock_rows(keys uuid[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    present bigint;
    locked bigint;
BEGIN
    PERFORM 1 FROM timeline t WHERE t.key = ANY (keys) ORDER BY t.key FOR UPDATE;
    PERFORM 1 FROM executions x WHERE x.id = ANY (keys) ORDER BY x.id FOR UPDATE;
    SELECT count(*) INTO present FROM timeline t WHERE t.key = ANY (keys);
    SELECT count(*) INTO locked
    FROM (SELECT 1 FROM timeline t WHERE t.key = ANY (keys) ORDER BY t.key FOR UPDATE SKIP LOCKED) held;
    IF locked < present THEN
        RAISE EXCEPTION 'a dispatch row was locked by another transaction' USING ERRCODE = 'ND002';
    END IF;
END $$;

-- The first open executions of a job that does not allow overlap, so many of those whose turn it is, and of those buffered.
CREATE FUNCTION turns_of(job uuid, most bigint, most_buffered bigint) RETURNS SETOF uuid LANGUAGE sql STABLE AS $$
    (SELECT x.id FROM executions x WHERE x.job_id = job AND x.buffered = 0 AND x.state < 2 AND x.watch & 1 = 1
     ORDER BY x.id LIMIT most)
    UNION ALL
    (SELECT x.id FROM executions x WHERE x.job_id = job AND x.buffered = 1 AND x.state < 2 AND x.watch & 1 = 1
     ORDER BY x.id LIMIT most_buffered)
$$;

-- As before, with the first open executions instead of all of them.
-- What settling one execution looks at: [[execution, version]], and of a watched job [[tenant, job, touched, whether it is
-- paused]] and, if it does not allow overlap, its first open executions.
CREATE OR REPLACE FUNCTION callers_look(execution text) RETURNS text LANGUAGE sql
SET search_path FROM CURRENT SET enable_seqscan = off AS $$
    SELECT jsonb_build_array(
        jsonb_build_array(jsonb_build_array(execution_json(x, NULL, false), x.xmin::text)),
        (SELECT coalesce(jsonb_agg(jsonb_build_array(j.tenant, j.id, j.touched, j.state = 1)), '[]')
         FROM jobs j WHERE x.watch <> 0 AND j.tenant = x.tenant AND j.id = x.job_id),
        (SELECT coalesce(jsonb_agg(execution_json(o, NULL, false) ORDER BY o.id), '[]')
         FROM turns_of(x.job_id, 2, 1) turn JOIN executions o ON o.id = turn WHERE x.watch & 1 = 1))::text
    FROM executions x WHERE x.id = execution::uuid
$$;
