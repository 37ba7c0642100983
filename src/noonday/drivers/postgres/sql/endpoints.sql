-- name: end_former
-- Secrets of an endpoint that were to end later end now; the one that was to last ends at an instant.
UPDATE secrets SET expires_ms = CASE WHEN expires_ms IS NULL THEN $3::bigint ELSE $4::bigint END
WHERE tenant = $1 AND endpoint = $2 AND coalesce(expires_ms, $4::bigint + 1) > $4 AND id <> $5;

-- name: add_secret
-- What calls are signed with from now on. Answers nothing if the tenant has, or had, one of this id.
INSERT INTO secrets (tenant, id, endpoint, kind, sealed, created_ms, expires_ms) VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT DO NOTHING RETURNING 1;

-- name: end_secret
-- Nothing is signed with it any more.
UPDATE secrets SET expires_ms = $3::bigint WHERE tenant = $1 AND id = $2 AND coalesce(expires_ms, $3::bigint + 1) > $3
RETURNING tenant, id, endpoint, kind, sealed, created_ms, expires_ms;

-- name: drop_ended
-- Secrets of a tenant that ended long ago.
DELETE FROM secrets WHERE tenant = $1 AND expires_ms < $2;

-- name: secrets
-- The secrets of a tenant, newest first.
SELECT tenant, id, endpoint, kind, sealed, created_ms, expires_ms FROM secrets WHERE tenant = $1 ORDER BY created_ms DESC, id DESC;

-- name: secrets_for
-- What may sign calls of some tenants to some endpoints.
SELECT DISTINCT s.tenant, s.id, s.endpoint, s.kind, s.sealed, s.created_ms, s.expires_ms
FROM unnest($1::text[], $2::text[]) e (tenant, endpoint) JOIN secrets s ON s.tenant = e.tenant AND s.endpoint IN ('', e.endpoint);
