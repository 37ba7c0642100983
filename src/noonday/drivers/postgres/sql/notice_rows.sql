-- name: put_preference
-- What somebody wants to be told of. It keeps the time it was first put at.
INSERT INTO alert_preferences (tenant, id, said, channel, created_ms, updated_ms) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (tenant, id) DO UPDATE SET said = excluded.said, channel = excluded.channel, updated_ms = excluded.updated_ms;

-- name: count_others
-- How many preferences a tenant has besides one.
SELECT count(*) FROM alert_preferences WHERE tenant = $1 AND id <> $2;

-- name: delete_preference
-- Nobody is told by it any more.
DELETE FROM alert_preferences WHERE tenant = $1 AND id = $2 RETURNING id;

-- name: find_preference
-- One of a tenant's.
SELECT tenant, id, said, channel, created_ms, updated_ms FROM alert_preferences WHERE tenant = $1 AND id = $2;

-- name: preferences
-- Those of some tenants.
SELECT p.tenant, p.id, p.said, p.channel, p.created_ms, p.updated_ms
FROM unnest($1::text[]) e (tenant) JOIN alert_preferences p ON p.tenant = e.tenant ORDER BY p.tenant, p.id;

-- name: take_alert_events
-- Those of some events that nobody else has taken.
-- Differs: what somebody else is about to take is left to them.
DELETE FROM happenings
WHERE id = ANY (ARRAY(SELECT id FROM happenings WHERE id = ANY ($1::bigint[]) ORDER BY id FOR UPDATE SKIP LOCKED)) RETURNING id;

-- name: open_notices
-- The notice that is open for a preference, or else a new one.
INSERT INTO notices (id, tenant, preference, due_ms)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[])
ON CONFLICT (tenant, preference) WHERE NOT closed DO UPDATE SET due_ms = least(notices.due_ms, excluded.due_ms)
RETURNING id, tenant, preference;

-- name: add_lines
-- What is to be told; of the same it counts.
INSERT INTO notice_lines AS l (notice_id, about, kind, count, first_ms, last_ms, alert_id, job_id, job_name, pool, execution_id,
                               endpoint, message)
SELECT e ->> 0, e ->> 1, e ->> 2, (e ->> 3)::bigint, (e ->> 4)::bigint, (e ->> 5)::bigint, e ->> 6, e ->> 7, e ->> 8, e ->> 9,
       e ->> 10, e ->> 11, e ->> 12
FROM json_array_elements($1::text::json) e
ON CONFLICT (notice_id, about, kind) DO UPDATE SET
    count = l.count + excluded.count, first_ms = least(l.first_ms, excluded.first_ms),
    last_ms = greatest(l.last_ms, excluded.last_ms), alert_id = excluded.alert_id, job_name = excluded.job_name,
    pool = excluded.pool, execution_id = excluded.execution_id, endpoint = excluded.endpoint, message = excluded.message;

-- name: close_due
-- What is due gathers nothing more.
-- Differs: what somebody is adding to, or closes as well, is left for the next round.
UPDATE notices SET closed = true
WHERE id = ANY (ARRAY(SELECT id FROM notices WHERE NOT closed AND due_ms <= $1 ORDER BY due_ms LIMIT $2 FOR UPDATE SKIP LOCKED));

-- name: closed
-- What is to be sent.
SELECT id, tenant, preference, due_ms FROM notices WHERE closed ORDER BY due_ms, id LIMIT $1;

-- name: next_due
-- When the next one that is open is due.
SELECT min(due_ms) FROM notices WHERE NOT closed;

-- name: counted
-- How often each kind happened, and when.
SELECT kind, sum(count)::bigint, min(first_ms), max(last_ms) FROM notice_lines WHERE notice_id = $1 GROUP BY kind ORDER BY kind;

-- name: count_subjects
-- To how many things.
SELECT count(DISTINCT about) FROM notice_lines WHERE notice_id = $1;

-- name: lines
-- What happened to the first of them.
SELECT l.about, l.kind, l.count, l.first_ms, l.last_ms, l.alert_id, l.job_id, l.job_name, l.pool, l.execution_id, l.endpoint,
       l.message
FROM (SELECT about, min(first_ms) AS began_ms FROM notice_lines WHERE notice_id = $1
      GROUP BY about ORDER BY began_ms, about LIMIT $2) first
     JOIN notice_lines l ON l.notice_id = $1 AND l.about = first.about
ORDER BY first.began_ms, l.about, l.first_ms, l.kind;

-- name: drop_lines
-- What was gathered for a notice.
DELETE FROM notice_lines WHERE notice_id = $1;

-- name: drop_notice
-- One that was sent.
DELETE FROM notices WHERE id = $1;

-- name: notices_of
-- What is gathered, or closed, for a preference.
SELECT id FROM notices WHERE tenant = $1 AND preference = $2 ORDER BY id FOR UPDATE;
