-- Settings of tenants are numbered in the order of their commits. The store's clock may be set; a number never falls.
ALTER TABLE tenants ADD COLUMN seq bigint NOT NULL DEFAULT 0;
UPDATE tenants t SET seq = n.seq
FROM (SELECT id, row_number() OVER (ORDER BY updated_ms, id) AS seq FROM tenants) n WHERE n.id = t.id;
INSERT INTO meta (key, value) SELECT 'settings_seq', coalesce(max(seq), 0)::text FROM tenants;
CREATE INDEX tenants_seq ON tenants (seq);
DROP INDEX tenants_updated;

-- By a trigger, so that what a former version puts is numbered too. The counter's row is locked until the commit: whoever reads
-- a number has read all that are lower.
CREATE FUNCTION number_settings() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO meta (key, value) VALUES ('settings_seq', '1')
    ON CONFLICT (key) DO UPDATE SET value = (meta.value::bigint + 1)::text RETURNING value::bigint INTO NEW.seq;
    RETURN NEW;
END $$;
CREATE TRIGGER tenants_numbered BEFORE INSERT OR UPDATE ON tenants FOR EACH ROW EXECUTE FUNCTION number_settings();
