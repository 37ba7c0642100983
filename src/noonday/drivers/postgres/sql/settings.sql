-- name: pool_names
-- Return the names of all pools.
SELECT coalesce(json_agg(name ORDER BY name), '[]')::text FROM pools;

-- name: handler
-- Return the declaration of a handler.
SELECT info FROM handlers WHERE pool = $1 AND name = $2;

-- name: handler_names
-- Return the names of the handlers of a pool, up to a limit.
SELECT coalesce(json_agg(name ORDER BY name), '[]')::text
FROM (SELECT name FROM handlers WHERE pool = $1 ORDER BY pool, name LIMIT $2) named;

-- name: put_pool
-- Save the settings of a pool.
INSERT INTO pools (name, settings) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET settings = excluded.settings;

-- name: tenant
-- Return the settings of a tenant and when they were saved.
SELECT settings, updated_ms FROM tenants WHERE id = $1;

-- name: pauses
-- Return all pauses.
SELECT kind, name, since_ms, subject FROM pauses;

-- name: add_pause
-- Pause a tenant, a pool, or everything.
INSERT INTO pauses (kind, name, since_ms, subject) VALUES ($1, $2, $3, $4) ON CONFLICT (kind, name) DO NOTHING;

-- name: remove_pause
-- Resume a tenant, a pool, or everything.
DELETE FROM pauses WHERE kind = $1 AND name = $2;

-- name: tenants_after
-- Return settings of tenants that were saved after a sequence number, in order.
SELECT coalesce(json_agg(json_build_object('id', id, 'settings', settings::json, 'seq', seq) ORDER BY seq), '[]')::text
FROM tenants WHERE seq > $1;

-- name: put_tenant
-- Save the settings of a tenant.
INSERT INTO tenants (id, settings, updated_ms) VALUES ($1, $2, $3)
ON CONFLICT (id) DO UPDATE SET settings = excluded.settings, updated_ms = excluded.updated_ms;

-- name: capped_pools
-- Return the pools that have a cap.
SELECT coalesce(json_agg(substr(key, 6)), '[]')::text FROM slots WHERE tenant = '' AND cap IS NOT NULL;

-- name: slots
-- Return the use and the cap of some slots.
SELECT coalesce(json_agg(json_build_object('tenant', s.tenant, 'key', s.key, 'used', s.used, 'cap', s.cap)), '[]')::text
FROM json_to_recordset($1::text::json) e (tenant text, key text) JOIN slots s ON s.tenant = e.tenant AND s.key = e.key;

-- name: audit
-- Return a page of audit entries, newest first: those of a tenant, and those of all tenants ('').
-- Differs: as `executions`.
SELECT coalesce(json_agg(json_build_object('number', id, 'entry', json_build_object(
           'tenant', tenant, 'at_ms', at_ms, 'subject', subject, 'action', action, 'target', target, 'detail', detail::json))),
                '[]')::text
FROM ((SELECT * FROM audit
       WHERE (tenant, id) >= ($1::text, 0) AND (tenant, id) < ($1, $4::bigint)
             AND coalesce(target = $2, $2 IS NULL) AND coalesce(subject = $3, $3 IS NULL)
       ORDER BY tenant DESC, id DESC LIMIT $5)
      UNION ALL
      (SELECT * FROM audit
       WHERE (tenant, id) >= ('', 0) AND (tenant, id) < ('', $4::bigint) AND $1 <> ''
             AND coalesce(target = $2, $2 IS NULL) AND coalesce(subject = $3, $3 IS NULL)
       ORDER BY tenant DESC, id DESC LIMIT $5)
      ORDER BY id DESC LIMIT $5) page;

-- name: note_visit
-- Note once a day that an operator reads a tenant.
INSERT INTO audit (tenant, at_ms, subject, action, target, detail) VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING;
