-- name: add_events
-- Insert events that do not exist.
INSERT OR IGNORE INTO notification_events (tenant, notification_id, name, at_ms, kind, number, detail)
VALUES (:tenant, :notification_id, :name, :at_ms, :kind, :number, :detail);

-- name: hear
-- Save when notifications were last heard of.
INSERT INTO notifications_by_user (tenant, notification_id, heard_ms)
SELECT e.value ->> 'tenant', e.value ->> 'notification_id', e.value ->> 'at_ms' FROM json_each(?1) e WHERE true
ON CONFLICT (tenant, notification_id) DO UPDATE SET heard_ms = excluded.heard_ms WHERE heard_ms < excluded.heard_ms;

-- name: decide
-- Insert a decision about a dispatch, unless there is one.
INSERT INTO notification_decisions (tenant, notification_id, number, kind) VALUES (:tenant, :notification_id, :number, :kind)
ON CONFLICT DO NOTHING;

-- name: decisions
-- Return the decisions about some dispatches.
SELECT d.tenant, d.notification_id, d.number, d.kind
FROM json_each(?1) e CROSS JOIN notification_decisions d
ON d.tenant = e.value ->> 'tenant' AND d.notification_id = e.value ->> 'notification_id' AND d.number = e.value ->> 'number';

-- name: events
-- Return the events of some notifications, by time and name.
SELECT n.tenant, n.notification_id, n.name, n.at_ms, n.kind, n.number, n.detail
FROM json_each(?1) e CROSS JOIN notification_events n
ON n.tenant = e.value ->> 'tenant' AND n.notification_id = e.value ->> 'notification_id'
ORDER BY n.at_ms, n.name;

-- name: of_user
-- Return a page of the notifications of a user, newest first, after one of them.
SELECT created_ms, notification_id FROM notifications_by_user
WHERE tenant = ?1 AND user_id = ?2 AND created_ms <= ?3 AND NOT (created_ms = ?3 AND notification_id <= ?4)
ORDER BY created_ms DESC, notification_id LIMIT ?5;

-- name: oldest
-- Return a page of notifications that were last heard of before an instant.
SELECT tenant, notification_id FROM notifications_by_user WHERE heard_ms < ?1 ORDER BY heard_ms LIMIT ?2;

-- name: drop_events
-- Delete the events of some notifications.
DELETE FROM notification_events
WHERE (tenant, notification_id) IN (SELECT e.value ->> 'tenant', e.value ->> 'notification_id' FROM json_each(?1) e);

-- name: drop_decisions
-- Delete the decisions about some notifications.
DELETE FROM notification_decisions
WHERE (tenant, notification_id) IN (SELECT e.value ->> 'tenant', e.value ->> 'notification_id' FROM json_each(?1) e);

-- name: drop_notifications
-- Delete some notifications from the index by user.
DELETE FROM notifications_by_user
WHERE (tenant, notification_id) IN (SELECT e.value ->> 'tenant', e.value ->> 'notification_id' FROM json_each(?1) e);
