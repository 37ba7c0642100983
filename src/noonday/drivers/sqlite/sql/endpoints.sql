-- name: end_former
-- Secrets of an endpoint that were to end later end now; the one that was to last ends at an instant.
UPDATE secrets SET expires_ms = iif(expires_ms IS NULL, ?3, ?4)
WHERE tenant = ?1 AND endpoint = ?2 AND coalesce(expires_ms, ?4 + 1) > ?4;

-- name: add_secret
-- What calls are signed with from now on.
INSERT INTO secrets (tenant, id, endpoint, kind, sealed, created_ms, expires_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7);

-- name: has_secret
-- Whether a tenant has, or had, a secret of this id.
SELECT 1 FROM secrets WHERE tenant = ?1 AND id = ?2;

-- name: end_secret
-- Nothing is signed with it any more.
UPDATE secrets SET expires_ms = ?3 WHERE tenant = ?1 AND id = ?2 AND coalesce(expires_ms, ?3 + 1) > ?3
RETURNING tenant, id, endpoint, kind, sealed, created_ms, expires_ms;

-- name: drop_ended
-- Secrets of a tenant that ended long ago.
DELETE FROM secrets WHERE tenant = ?1 AND expires_ms < ?2;

-- name: secrets
-- The secrets of a tenant, newest first.
SELECT tenant, id, endpoint, kind, sealed, created_ms, expires_ms FROM secrets WHERE tenant = ?1 ORDER BY created_ms DESC, id DESC;

-- name: secrets_for
-- What may sign calls of some tenants to some endpoints.
SELECT DISTINCT s.tenant, s.id, s.endpoint, s.kind, s.sealed, s.created_ms, s.expires_ms
FROM json_each(?1) e CROSS JOIN secrets s ON s.tenant = e.value ->> 0 AND s.endpoint IN ('', e.value ->> 1);
