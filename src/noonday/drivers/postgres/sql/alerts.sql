-- name: take_incidents
-- Delete the incidents that the caller handles. Returns those that still existed.
-- Differs: skips incidents that another transaction has locked.
DELETE FROM incidents
WHERE id IN (SELECT i.id FROM incidents i WHERE i.id = ANY ($1::bigint[]) ORDER BY i.id FOR UPDATE SKIP LOCKED) RETURNING id;

-- name: raise_alerts
-- Open alerts, or add to open ones. Skips observations that were recorded before. Returns each alert.
INSERT INTO alerts AS a (id, tenant, kind, about, job_id, job_name, pool, execution_id, endpoint, message, count, first_ms, last_ms,
                         dedup_key)
SELECT e ->> 'id', e ->> 'tenant', e ->> 'kind', e ->> 'about', e ->> 'job_id', j.name, coalesce(j.pool, ''), e ->> 'execution_id',
       coalesce(e ->> 'endpoint', j.endpoint), e ->> 'message', (e ->> 'count')::bigint, (e ->> 'first_ms')::bigint,
       (e ->> 'last_ms')::bigint, e ->> 'dedup_key'
FROM jsonb_array_elements($1::text::jsonb) WITH ORDINALITY AS observed (e, nth)
     LEFT JOIN LATERAL (SELECT jobs.name, jobs.pool, jobs.endpoint FROM jobs
                        WHERE jobs.tenant = e ->> 'tenant' AND jobs.id = nullif(e ->> 'job_id', '')::uuid) j ON true
WHERE NOT EXISTS (SELECT 1 FROM alerts o
                  WHERE o.tenant = e ->> 'tenant' AND o.about = e ->> 'about' AND o.kind = e ->> 'kind'
                        AND o.dedup_key IS NOT NULL AND o.dedup_key >= e ->> 'dedup_key')
ORDER BY observed.nth
ON CONFLICT (tenant, about, kind) WHERE acknowledged_ms IS NULL AND recovered_ms IS NULL
DO UPDATE SET execution_id = excluded.execution_id, message = excluded.message, count = a.count + excluded.count,
              last_ms = greatest(a.last_ms, excluded.last_ms), dedup_key = coalesce(excluded.dedup_key, a.dedup_key)
RETURNING tenant, about, kind, id, job_name, pool, endpoint;

-- name: add_alert_events
-- Insert alert events that people may want to be notified of.
INSERT INTO alert_events (tenant, alert_id, kind, job_id, job_name, pool, execution_id, endpoint, message, count, at_ms)
SELECT e ->> 'tenant', e ->> 'alert_id', e ->> 'kind', e ->> 'job_id', e ->> 'job_name', e ->> 'pool', e ->> 'execution_id',
       e ->> 'endpoint', e ->> 'message', (e ->> 'count')::bigint, (e ->> 'at_ms')::bigint
FROM jsonb_array_elements($1::text::jsonb) e;

-- name: alert_events
-- Return the oldest alert events that are not in a notice yet.
SELECT id, tenant, alert_id, kind, job_id, job_name, pool, execution_id, endpoint, message, count, at_ms
FROM alert_events ORDER BY id LIMIT $1;

-- name: unrecovered
-- Return a page of alerts that have not recovered, by id, each with whether its job has succeeded since.
-- Differs: a row comparison names the job, which leaves no index but the one by job.
SELECT a.id, a.kind IN ('FAILED', 'EXHAUSTED', 'MISSED', 'SLOW') AND a.job_id <> '' AND (
           EXISTS (SELECT 1 FROM executions x WHERE x.id = nullif(a.execution_id, '')::uuid AND x.state = 5 OFFSET 0)
           OR EXISTS (SELECT 1 FROM (SELECT x.state, x.finished_ms FROM executions x
                                     WHERE (x.job_id, x.id) >= (nullif(a.job_id, '')::uuid, '00000000-0000-0000-0000-000000000000')
                                           AND (x.job_id, x.id) <= (nullif(a.job_id, '')::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
                                     ORDER BY x.job_id DESC, x.id DESC LIMIT 20) latest
                      WHERE latest.state = 5 AND latest.finished_ms > a.last_ms)) AS succeeded
FROM (SELECT * FROM alerts WHERE recovered_ms IS NULL AND id > $1 ORDER BY id LIMIT $2) a ORDER BY a.id;

-- name: recover
-- Mark alerts as recovered. Returns those that had not recovered before.
UPDATE alerts SET recovered_ms = $2
WHERE id IN (SELECT r.id FROM alerts r WHERE r.id = ANY ($1::text[]) AND r.recovered_ms IS NULL ORDER BY r.id FOR UPDATE)
RETURNING id, tenant, kind, about, job_id, job_name, pool, execution_id, endpoint, message, count, first_ms, last_ms,
          acknowledged_ms, acknowledged_by, recovered_ms;

-- name: late
-- Return a page of timeline rows after a mark that were due before an instant.
SELECT t.due_ms, t.key::text, t.tenant, t.pool, CASE t.kind WHEN 0 THEN t.key::text ELSE coalesce(x.job_id::text, '') END AS job_id,
       coalesce(x.id::text, '') AS execution_id, t.early = 1 AS early
FROM (SELECT * FROM timeline WHERE due_ms IS NOT NULL AND (due_ms, key) > ($1::bigint, $2::uuid) AND due_ms < $3::bigint
      ORDER BY due_ms, key LIMIT $4) t
     LEFT JOIN LATERAL (SELECT o.id, o.job_id FROM executions o WHERE t.kind = 1 AND o.id = t.key) x ON true
ORDER BY t.due_ms, t.key;

-- name: stranded
-- Return a page of open executions by job, each with whether it was dispatched before an instant and has not started.
SELECT x.due_ms, x.id::text AS key, x.tenant, x.pool, x.job_id::text, x.id::text AS execution_id,
       coalesce(x.state = 0 AND x.worker_id IS NULL AND x.fired_ms < $2::bigint, false) AS is_stranded
FROM (SELECT * FROM executions WHERE state < 2 AND job_id > $1::uuid ORDER BY job_id, fired_ms LIMIT $3) x
ORDER BY x.job_id, x.id;

-- name: slow
-- Return a page of jobs after a mark: the oldest run that started before an instant, how many of the last runs succeeded, and
-- the longest of these.
-- Differs: as `unrecovered`; uuids have no min().
SELECT oldest.tenant, oldest.job_id::text, oldest.id::text AS execution_id, oldest.pool, oldest.started_ms,
       json_build_object('successes', usual.successes, 'longest_ms', usual.longest_ms)::text AS usual
FROM (SELECT DISTINCT ON (r.job_id) r.tenant, r.job_id, r.id, r.pool, r.started_ms FROM executions r
      WHERE r.state = 1 AND r.job_id > $1::uuid AND r.started_ms < $2::bigint ORDER BY r.job_id, r.id LIMIT $3) oldest
     CROSS JOIN LATERAL (
         SELECT count(*) AS successes, coalesce(max(s.finished_ms - s.started_ms), 0) AS longest_ms
         FROM (SELECT latest.finished_ms, latest.started_ms
               FROM (SELECT y.state, y.finished_ms, y.started_ms FROM executions y
                     WHERE (y.job_id, y.id) >= (oldest.job_id, '00000000-0000-0000-0000-000000000000')
                           AND (y.job_id, y.id) <= (oldest.job_id, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
                     ORDER BY y.job_id DESC, y.id DESC LIMIT 100) latest
               WHERE latest.state = 5 LIMIT 20) s) usual
ORDER BY oldest.job_id;

-- name: alerts
-- Return a page of alerts of a tenant, newest first.
SELECT id, tenant, kind, about, job_id, job_name, pool, execution_id, endpoint, message, count, first_ms, last_ms,
       acknowledged_ms, acknowledged_by, recovered_ms
FROM alerts
WHERE (tenant, id) >= ($1, '') AND (tenant, id) < ($1, $2) AND coalesce((acknowledged_ms IS NULL) = $3::boolean, true) AND coalesce(kind = $4::text, $4 IS NULL)
      AND last_ms <= coalesce($5::bigint, last_ms)
ORDER BY tenant DESC, id DESC LIMIT $6;

-- name: unread_alerts
-- Return a page of alerts that are not acknowledged, as `alerts`.
SELECT id, tenant, kind, about, job_id, job_name, pool, execution_id, endpoint, message, count, first_ms, last_ms,
       acknowledged_ms, acknowledged_by, recovered_ms
FROM alerts
WHERE (tenant, id) >= ($1, '') AND (tenant, id) < ($1, $2) AND acknowledged_ms IS NULL AND $3::boolean AND coalesce(kind = $4::text, $4 IS NULL)
      AND last_ms <= coalesce($5::bigint, last_ms)
ORDER BY tenant DESC, id DESC LIMIT $6;

-- name: alerts_of_job
-- Return a page of alerts of a job, as `alerts`.
SELECT id, tenant, kind, about, job_id, job_name, pool, execution_id, endpoint, message, count, first_ms, last_ms,
       acknowledged_ms, acknowledged_by, recovered_ms
FROM alerts
WHERE tenant = $1 AND job_id = $7 AND id < $2 AND coalesce((acknowledged_ms IS NULL) = $3::boolean, true)
      AND coalesce(kind = $4::text, $4 IS NULL) AND last_ms <= coalesce($5::bigint, last_ms)
ORDER BY job_id DESC, id DESC LIMIT $6;

-- name: count_unread
-- Return how many alerts are not acknowledged, up to a limit.
SELECT count(*) FROM (SELECT 1 FROM alerts WHERE tenant = $1 AND acknowledged_ms IS NULL LIMIT $2) counted;

-- name: alert
-- Return one alert.
SELECT id, tenant, kind, about, job_id, job_name, pool, execution_id, endpoint, message, count, first_ms, last_ms,
       acknowledged_ms, acknowledged_by, recovered_ms
FROM alerts WHERE tenant = $1 AND id = $2;

-- name: acknowledge
-- Mark alerts as acknowledged.
UPDATE alerts SET acknowledged_ms = $3, acknowledged_by = $4
WHERE id IN (SELECT r.id FROM alerts r WHERE r.id = ANY ($2::text[]) AND r.tenant = $1 AND r.acknowledged_ms IS NULL
             ORDER BY r.id FOR UPDATE)
RETURNING id;

-- name: prune_alerts
-- Delete alerts that are past retention.
DELETE FROM alerts WHERE id IN (SELECT id FROM alerts WHERE last_ms < $1 ORDER BY last_ms LIMIT $2)
RETURNING id;
