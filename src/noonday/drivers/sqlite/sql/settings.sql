-- name: pool_names
-- Return the names of all pools.
SELECT json_group_array(name) FROM (SELECT name FROM pools ORDER BY name);

-- name: handler
-- Return the declaration of a handler.
SELECT info FROM handlers WHERE pool = ?1 AND name = ?2;

-- name: handler_names
-- Return the names of the handlers of a pool, up to a limit.
SELECT json_group_array(name) FROM (SELECT name FROM handlers WHERE pool = ?1 ORDER BY pool, name LIMIT ?2);

-- name: put_pool
-- Save the settings of a pool.
INSERT INTO pools (name, settings) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET settings = excluded.settings;

-- name: tenant
-- Return the settings of a tenant and when they were saved.
SELECT settings, updated_ms FROM tenants WHERE id = ?1;

-- name: pauses
-- Return all pauses.
SELECT kind, name, since_ms, subject FROM pauses;

-- name: add_pause
-- Pause a tenant, a pool, or everything.
INSERT INTO pauses (kind, name, since_ms, subject) VALUES (?1, ?2, ?3, ?4) ON CONFLICT (kind, name) DO NOTHING;

-- name: remove_pause
-- Resume a tenant, a pool, or everything.
DELETE FROM pauses WHERE kind = ?1 AND name = ?2;

-- name: tenants_after
-- Return settings of tenants that were saved after a sequence number, in order.
SELECT json_group_array(json_object('id', id, 'settings', json(settings), 'seq', seq))
FROM (SELECT * FROM tenants WHERE seq > ?1 ORDER BY seq);

-- name: put_tenant
-- Save the settings of a tenant with the next sequence number.
-- Differs: there is one writer, so no counter has to be locked.
INSERT INTO tenants (id, settings, updated_ms, seq) VALUES (?1, ?2, ?3, (SELECT coalesce(max(seq), 0) + 1 FROM tenants))
ON CONFLICT (id) DO UPDATE SET settings = excluded.settings, updated_ms = excluded.updated_ms, seq = excluded.seq;

-- name: capped_pools
-- Return the pools that have a cap.
SELECT json_group_array(substr(key, 6)) FROM slots WHERE tenant = '' AND cap IS NOT NULL;

-- name: slots
-- Return the use and the cap of some slots.
SELECT json_group_array(json_object('tenant', s.tenant, 'key', s.key, 'used', s.used, 'cap', s.cap))
FROM json_each(?1) e CROSS JOIN slots s ON s.tenant = e.value ->> 'tenant' AND s.key = e.value ->> 'key';

-- name: audit
-- Return a page of audit entries, newest first: those of a tenant, and those of all tenants ('').
SELECT json_group_array(json_object('number', id, 'entry', json_object(
           'tenant', tenant, 'at_ms', at_ms, 'subject', subject, 'action', action, 'target', target, 'detail', json(detail))))
FROM (SELECT * FROM (SELECT * FROM audit
                     WHERE tenant = ?1 AND (?2 IS NULL OR target = ?2) AND (?3 IS NULL OR subject = ?3)
                           AND (?4 IS NULL OR id < ?4)
                     ORDER BY id DESC LIMIT ?5)
      UNION ALL
      SELECT * FROM (SELECT * FROM audit
                     WHERE tenant = '' AND ?1 <> '' AND (?2 IS NULL OR target = ?2) AND (?3 IS NULL OR subject = ?3)
                           AND (?4 IS NULL OR id < ?4)
                     ORDER BY id DESC LIMIT ?5)
      ORDER BY id DESC LIMIT ?5);

-- name: note_visit
-- Note once a day that an operator reads a tenant.
INSERT INTO audit (tenant, at_ms, subject, action, target, detail) VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO NOTHING;
