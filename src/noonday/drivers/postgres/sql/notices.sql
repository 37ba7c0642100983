-- name: put_preference
-- Save a preference. It keeps its creation time.
INSERT INTO alert_preferences (tenant, id, spec, channel, created_ms, updated_ms) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (tenant, id) DO UPDATE SET spec = excluded.spec, channel = excluded.channel, updated_ms = excluded.updated_ms;

-- name: count_others
-- Return how many other preferences a tenant has.
SELECT count(*) FROM alert_preferences WHERE tenant = $1 AND id <> $2;

-- name: delete_preference
-- Delete a preference.
DELETE FROM alert_preferences WHERE tenant = $1 AND id = $2 RETURNING id;

-- name: find_preference
-- Return one preference of a tenant.
SELECT tenant, id, spec, channel, created_ms, updated_ms FROM alert_preferences WHERE tenant = $1 AND id = $2;

-- name: preferences
-- Return the preferences of some tenants.
SELECT p.tenant, p.id, p.spec, p.channel, p.created_ms, p.updated_ms
FROM unnest($1::text[]) e (tenant) JOIN alert_preferences p ON p.tenant = e.tenant ORDER BY p.tenant, p.id;

-- name: take_alert_events
-- Delete the alert events that the caller handles. Returns those that still existed.
-- Differs: skips events that another transaction has locked.
DELETE FROM alert_events
WHERE id = ANY (ARRAY(SELECT id FROM alert_events WHERE id = ANY ($1::bigint[]) ORDER BY id FOR UPDATE SKIP LOCKED)) RETURNING id;

-- name: open_notices
-- Return the open notice of each preference, and open those that are missing.
INSERT INTO notices (id, tenant, preference, due_ms)
SELECT e.id, e.tenant, e.preference, e.due_ms
FROM json_to_recordset($1::text::json) e (id text, tenant text, preference text, due_ms bigint)
ON CONFLICT (tenant, preference) WHERE NOT closed DO UPDATE SET due_ms = least(notices.due_ms, excluded.due_ms)
RETURNING id, tenant, preference;

-- name: add_lines
-- Add lines to notices. A line with the same subject and kind is counted.
INSERT INTO digest_items AS l (notice_id, about, kind, count, first_ms, last_ms, alert_id, job_id, job_name, pool, execution_id,
                               endpoint, message)
SELECT e ->> 'notice_id', e ->> 'about', e ->> 'kind', (e ->> 'count')::bigint, (e ->> 'first_ms')::bigint,
       (e ->> 'last_ms')::bigint, e ->> 'alert_id', e ->> 'job_id', e ->> 'job_name', e ->> 'pool', e ->> 'execution_id',
       e ->> 'endpoint', e ->> 'message'
FROM json_array_elements($1::text::json) e
ON CONFLICT (notice_id, about, kind) DO UPDATE SET
    count = l.count + excluded.count, first_ms = least(l.first_ms, excluded.first_ms),
    last_ms = greatest(l.last_ms, excluded.last_ms), alert_id = excluded.alert_id, job_name = excluded.job_name,
    pool = excluded.pool, execution_id = excluded.execution_id, endpoint = excluded.endpoint, message = excluded.message;

-- name: close_due
-- Close due notices, so that they gather nothing more.
-- Differs: leaves notices that another transaction has locked to the next round.
UPDATE notices SET closed = true
WHERE id = ANY (ARRAY(SELECT id FROM notices WHERE NOT closed AND due_ms <= $1 ORDER BY due_ms LIMIT $2 FOR UPDATE SKIP LOCKED));

-- name: closed
-- Return closed notices, which are to be sent.
SELECT id, tenant, preference, due_ms FROM notices WHERE closed ORDER BY due_ms, id LIMIT $1;

-- name: next_due
-- Return when the next open notice is due.
SELECT min(due_ms) FROM notices WHERE NOT closed;

-- name: counted
-- Return how often each kind of event is in a notice, and its first and last time.
SELECT kind, sum(count)::bigint AS count, min(first_ms) AS first_ms, max(last_ms) AS last_ms
FROM digest_items WHERE notice_id = $1 GROUP BY kind ORDER BY kind;

-- name: count_subjects
-- Return how many subjects a notice has.
SELECT count(DISTINCT about) FROM digest_items WHERE notice_id = $1;

-- name: lines
-- Return the lines of the first subjects of a notice.
SELECT l.about, l.kind, l.count, l.first_ms, l.last_ms, l.alert_id, l.job_id, l.job_name, l.pool, l.execution_id, l.endpoint,
       l.message
FROM (SELECT about, min(first_ms) AS began_ms FROM digest_items WHERE notice_id = $1
      GROUP BY about ORDER BY began_ms, about LIMIT $2) first
     JOIN digest_items l ON l.notice_id = $1 AND l.about = first.about
ORDER BY first.began_ms, l.about, l.first_ms, l.kind;

-- name: drop_lines
-- Delete the lines of a notice.
DELETE FROM digest_items WHERE notice_id = $1;

-- name: drop_notice
-- Delete a notice.
DELETE FROM notices WHERE id = $1;

-- name: notices_of
-- Lock and return the notices of a preference.
SELECT id FROM notices WHERE tenant = $1 AND preference = $2 ORDER BY id FOR UPDATE;
