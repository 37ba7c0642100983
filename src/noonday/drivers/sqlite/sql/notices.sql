-- name: put_preference
-- Save a preference. It keeps its creation time.
INSERT INTO alert_preferences (tenant, id, spec, channel, created_ms, updated_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (tenant, id) DO UPDATE SET spec = excluded.spec, channel = excluded.channel, updated_ms = excluded.updated_ms;

-- name: count_others
-- Return how many other preferences a tenant has.
SELECT count(*) FROM alert_preferences WHERE tenant = ?1 AND id <> ?2;

-- name: delete_preference
-- Delete a preference.
DELETE FROM alert_preferences WHERE tenant = ?1 AND id = ?2 RETURNING id;

-- name: find_preference
-- Return one preference of a tenant.
SELECT tenant, id, spec, channel, created_ms, updated_ms FROM alert_preferences WHERE tenant = ?1 AND id = ?2;

-- name: preferences
-- Return the preferences of some tenants.
SELECT p.tenant, p.id, p.spec, p.channel, p.created_ms, p.updated_ms
FROM json_each(?1) e CROSS JOIN alert_preferences p ON p.tenant = e.value ORDER BY p.tenant, p.id;

-- name: take_alert_events
-- Delete the alert events that the caller handles. Returns those that still existed.
DELETE FROM alert_events WHERE id IN (SELECT value FROM json_each(?1)) RETURNING id;

-- name: open_notices
-- Return the open notice of each preference, and open those that are missing.
INSERT INTO notices (id, tenant, preference, due_ms)
SELECT e.value ->> 'id', e.value ->> 'tenant', e.value ->> 'preference', e.value ->> 'due_ms' FROM json_each(?1) e WHERE true
ON CONFLICT (tenant, preference) WHERE closed = 0 DO UPDATE SET due_ms = min(due_ms, excluded.due_ms)
RETURNING id, tenant, preference;

-- name: add_lines
-- Add lines to notices. A line with the same subject and kind is counted.
INSERT INTO digest_items (notice_id, about, kind, count, first_ms, last_ms, alert_id, job_id, job_name, pool, execution_id,
                          endpoint, message)
SELECT e.value ->> 'notice_id', e.value ->> 'about', e.value ->> 'kind', e.value ->> 'count', e.value ->> 'first_ms',
       e.value ->> 'last_ms', e.value ->> 'alert_id', e.value ->> 'job_id', e.value ->> 'job_name', e.value ->> 'pool',
       e.value ->> 'execution_id', e.value ->> 'endpoint', e.value ->> 'message'
FROM json_each(?1) e WHERE true
ON CONFLICT (notice_id, about, kind) DO UPDATE SET
    count = count + excluded.count, first_ms = min(first_ms, excluded.first_ms), last_ms = max(last_ms, excluded.last_ms),
    alert_id = excluded.alert_id, job_name = excluded.job_name, pool = excluded.pool, execution_id = excluded.execution_id,
    endpoint = excluded.endpoint, message = excluded.message;

-- name: close_due
-- Close due notices, so that they gather nothing more.
UPDATE notices SET closed = 1
WHERE id IN (SELECT id FROM notices WHERE closed = 0 AND due_ms <= ?1 ORDER BY due_ms LIMIT ?2);

-- name: closed
-- Return closed notices, which are to be sent.
SELECT id, tenant, preference, due_ms FROM notices WHERE closed = 1 ORDER BY due_ms, id LIMIT ?1;

-- name: next_due
-- Return when the next open notice is due.
SELECT min(due_ms) FROM notices WHERE closed = 0;

-- name: counted
-- Return how often each kind of event is in a notice, and its first and last time.
SELECT kind, sum(count) AS count, min(first_ms) AS first_ms, max(last_ms) AS last_ms
FROM digest_items WHERE notice_id = ?1 GROUP BY kind ORDER BY kind;

-- name: count_subjects
-- Return how many subjects a notice has.
SELECT count(DISTINCT about) FROM digest_items WHERE notice_id = ?1;

-- name: lines
-- Return the lines of the first subjects of a notice.
SELECT l.about, l.kind, l.count, l.first_ms, l.last_ms, l.alert_id, l.job_id, l.job_name, l.pool, l.execution_id, l.endpoint,
       l.message
FROM (SELECT about, min(first_ms) AS began_ms FROM digest_items WHERE notice_id = ?1
      GROUP BY about ORDER BY began_ms, about LIMIT ?2) first
     CROSS JOIN digest_items l ON l.notice_id = ?1 AND l.about = first.about
ORDER BY first.began_ms, l.about, l.first_ms, l.kind;

-- name: drop_lines
-- Delete the lines of a notice.
DELETE FROM digest_items WHERE notice_id = ?1;

-- name: drop_notice
-- Delete a notice.
DELETE FROM notices WHERE id = ?1;

-- name: notices_of
-- Return the notices of a preference.
SELECT id FROM notices WHERE tenant = ?1 AND preference = ?2;
