-- Settings of tenants are numbered in the order in which they were put. The clock may be set; a number never falls.
ALTER TABLE tenants ADD COLUMN seq INTEGER NOT NULL DEFAULT 0;
UPDATE tenants SET seq = (SELECT count(*) FROM tenants o WHERE (o.updated_ms, o.id) <= (tenants.updated_ms, tenants.id));
CREATE INDEX tenants_seq ON tenants (seq);
DROP INDEX tenants_updated;
