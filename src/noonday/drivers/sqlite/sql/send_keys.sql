-- name: held
-- Return who has a key, and until when.
SELECT notification_id, number, sent, until_ms FROM send_keys WHERE tenant = ?1 AND key = ?2;

-- name: take
-- Save that a dispatch has a key.
INSERT INTO send_keys (tenant, key, notification_id, number, sent, until_ms) VALUES (?1, ?2, ?3, ?4, 0, ?5)
ON CONFLICT (tenant, key) DO UPDATE
SET notification_id = excluded.notification_id, number = excluded.number, sent = 0, until_ms = excluded.until_ms;

-- name: sent
-- Save until when a key is that of a notification that was sent, unless another notification has it.
INSERT INTO send_keys (tenant, key, notification_id, number, sent, until_ms) VALUES (?1, ?2, ?3, 0, 1, ?4)
ON CONFLICT (tenant, key) DO UPDATE SET sent = 1, until_ms = excluded.until_ms
WHERE notification_id = excluded.notification_id;

-- name: release
-- Delete a key that this dispatch or an earlier one has.
DELETE FROM send_keys WHERE tenant = ?1 AND key = ?2 AND notification_id = ?3 AND number <= ?4 AND sent = 0;

-- name: drop_ended
-- Delete keys that are free.
DELETE FROM send_keys WHERE (tenant, key) IN (SELECT tenant, key FROM send_keys WHERE until_ms <= ?1 ORDER BY until_ms LIMIT ?2);
