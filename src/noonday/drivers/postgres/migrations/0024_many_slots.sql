-- As before; whether slots are locked is told by their number, and only if some are, which: a batch may name thousands.
-- Fire entries that were planned: all of them, or none. w as in write_ledger and check_unchanged, and
-- shots [[key, number, nominal, job, whether it was planned by runs_left, runs_left]], members [[execution, due]]. Answers the batch.
CREATE OR REPLACE FUNCTION fire_planned(instance text, epochs bigint[], given_ms bigint, lead_ms bigint, w jsonb,
                                        OUT batch bigint) LANGUAGE plpgsql AS $$
DECLARE
    sound uuid[];
    own jsonb;
    own_slots text[];
    present bigint;
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
        SELECT array_agg(ROW (tenant, key)::text) INTO own_slots FROM (
            SELECT s.tenant, s.key FROM jsonb_array_elements(w -> 'slots') e JOIN slots s ON s.tenant = e ->> 0 AND s.key = e ->> 1
            ORDER BY s.tenant, s.key FOR UPDATE OF s SKIP LOCKED) locked;
        SELECT count(*) INTO present FROM jsonb_array_elements(w -> 'slots') e JOIN slots s ON s.tenant = e ->> 0 AND s.key = e ->> 1;
        IF present > coalesce(cardinality(own_slots), 0) THEN
            SELECT jsonb_agg(jsonb_build_array(s.tenant, s.key))::text INTO left_out
            FROM jsonb_array_elements(w -> 'slots') e JOIN slots s ON s.tenant = e ->> 0 AND s.key = e ->> 1
            WHERE ROW (s.tenant, s.key)::text <> ALL (coalesce(own_slots, '{}'));
            RAISE EXCEPTION 'some slots are locked' USING ERRCODE = 'ND005', DETAIL = coalesce(left_out, '[]');
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
