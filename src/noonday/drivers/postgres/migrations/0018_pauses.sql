-- Refuse shots [[key, ...]] of a tenant or pool that is paused, as if they were stale: their keys are the detail.
CREATE FUNCTION refuse_paused(shots jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    refused text;
BEGIN
    IF NOT EXISTS (SELECT 1 FROM pauses) THEN
        RETURN;
    END IF;
    SELECT json_agg(t.key)::text INTO refused
    FROM jsonb_array_elements(shots) e JOIN timeline t ON t.key = (e ->> 0)::uuid
    WHERE EXISTS (SELECT 1 FROM pauses z
                  WHERE z.kind = 'ALL' OR z.kind = 'POOL' AND z.name = t.pool OR z.kind = 'TENANT' AND z.name = t.tenant);
    IF refused IS NOT NULL THEN
        RAISE EXCEPTION 'some entries are paused' USING ERRCODE = 'ND004', DETAIL = refused;
    END IF;
END $$;
