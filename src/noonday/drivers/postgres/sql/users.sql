-- name: put
-- Save a profile and return its row. The time is the first version, so that a user who was deleted does not begin again.
INSERT INTO users AS o (tenant, user_id, version, profile, created_ms, updated_ms) VALUES ($1, $2, $4, $3, $4, $4)
ON CONFLICT (tenant, user_id) DO UPDATE
SET version = greatest(o.version + 1, excluded.version), profile = excluded.profile, updated_ms = excluded.updated_ms
RETURNING tenant, user_id, version, profile, created_ms, updated_ms;

-- name: find_many
-- Return some users.
SELECT u.tenant, u.user_id, u.version, u.profile, u.created_ms, u.updated_ms
FROM json_to_recordset($1::text::json) e (tenant text, user_id text)
JOIN users u ON u.tenant = e.tenant AND u.user_id = e.user_id;

-- name: delete
-- Delete a user.
DELETE FROM users WHERE tenant = $1 AND user_id = $2 RETURNING 1;
