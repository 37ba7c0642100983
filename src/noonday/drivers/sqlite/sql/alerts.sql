-- name: take_incidents
-- Delete the incidents that the caller handles. Returns those that still existed.
DELETE FROM incidents WHERE id IN (SELECT value FROM json_each(?1)) RETURNING id;

-- name: raise_alerts
-- Open alerts, or add to open ones. Skips observations that were recorded before. Returns each alert.
INSERT INTO alerts (id, tenant, kind, about, job_id, job_name, pool, execution_id, endpoint, message, count, first_ms, last_ms, dedup_key)
SELECT e.value ->> 'id', e.value ->> 'tenant', e.value ->> 'kind', e.value ->> 'about', e.value ->> 'job_id', j.name,
       coalesce(j.pool, ''), e.value ->> 'execution_id', coalesce(e.value ->> 'endpoint', j.endpoint), e.value ->> 'message',
       e.value ->> 'count', e.value ->> 'first_ms', e.value ->> 'last_ms', e.value ->> 'dedup_key'
FROM json_each(?1) e LEFT JOIN jobs j ON j.tenant = e.value ->> 'tenant' AND j.id = e.value ->> 'job_id'
WHERE NOT EXISTS (SELECT 1 FROM alerts a
                  WHERE a.tenant = e.value ->> 'tenant' AND a.about = e.value ->> 'about' AND a.kind = e.value ->> 'kind'
                        AND a.dedup_key IS NOT NULL AND a.dedup_key >= e.value ->> 'dedup_key')
ON CONFLICT (tenant, about, kind) WHERE acknowledged_ms IS NULL AND recovered_ms IS NULL
DO UPDATE SET execution_id = excluded.execution_id, message = excluded.message, count = count + excluded.count,
              last_ms = max(last_ms, excluded.last_ms), dedup_key = coalesce(excluded.dedup_key, dedup_key)
RETURNING tenant, about, kind, id, job_name, pool, endpoint;

-- name: add_alert_events
-- Insert alert events that people may want to be notified of.
INSERT INTO alert_events (tenant, alert_id, kind, job_id, job_name, pool, execution_id, endpoint, message, count, at_ms)
SELECT value ->> 'tenant', value ->> 'alert_id', value ->> 'kind', value ->> 'job_id', value ->> 'job_name', value ->> 'pool',
       value ->> 'execution_id', value ->> 'endpoint', value ->> 'message', value ->> 'count', value ->> 'at_ms'
FROM json_each(?1);

-- name: alert_events
-- Return the oldest alert events that are not in a notice yet.
SELECT id, tenant, alert_id, kind, job_id, job_name, pool, execution_id, endpoint, message, count, at_ms
FROM alert_events ORDER BY id LIMIT ?1;

-- name: unrecovered
-- Return a page of alerts that have not recovered, by id, each with whether its job has succeeded since.
SELECT a.id, a.kind IN ('FAILED', 'EXHAUSTED', 'MISSED', 'SLOW') AND (
           EXISTS (SELECT 1 FROM executions x WHERE x.job_id = a.job_id AND x.id = a.execution_id AND x.state = 5)
           OR EXISTS (SELECT 1 FROM (SELECT x.state, x.finished_ms FROM executions x
                                     WHERE x.job_id = a.job_id ORDER BY x.id DESC LIMIT 20) latest
                      WHERE latest.state = 5 AND latest.finished_ms > a.last_ms)) AS succeeded
FROM alerts a WHERE a.recovered_ms IS NULL AND a.id > ?1 ORDER BY a.id LIMIT ?2;

-- name: recover
-- Mark alerts as recovered. Returns those that had not recovered before.
UPDATE alerts SET recovered_ms = ?2 WHERE id IN (SELECT value FROM json_each(?1)) AND recovered_ms IS NULL
RETURNING id, tenant, kind, about, job_id, job_name, pool, execution_id, endpoint, message, count, first_ms, last_ms,
          acknowledged_ms, acknowledged_by, recovered_ms;

-- name: late
-- Return a page of timeline rows after a mark that were due before an instant.
SELECT t.due_ms, t.key, t.tenant, t.pool, CASE t.kind WHEN 0 THEN t.key ELSE coalesce(x.job_id, '') END AS job_id,
       coalesce(x.id, '') AS execution_id, t.early = 1 AS early
FROM (SELECT * FROM timeline WHERE due_ms IS NOT NULL AND (due_ms, key) > (?1, ?2) AND due_ms < ?3
      ORDER BY due_ms, key LIMIT ?4) t
     LEFT JOIN executions x ON t.kind = 1 AND x.id = t.key
ORDER BY t.due_ms, t.key;

-- name: stranded
-- Return a page of open executions by job, each with whether it was dispatched before an instant and has not started.
SELECT x.due_ms, x.id AS key, x.tenant, x.pool, x.job_id, x.id AS execution_id,
       x.state = 0 AND x.worker_id IS NULL AND x.fired_ms < ?2 AS is_stranded
FROM (SELECT o.job_id, o.id FROM executions o INDEXED BY executions_open
      WHERE o.state < 2 AND o.job_id > ?1 ORDER BY o.job_id, o.id LIMIT ?3) page
     CROSS JOIN executions x ON x.job_id = page.job_id AND x.id = page.id
ORDER BY x.job_id, x.id;

-- name: slow
-- Return a page of jobs after a mark: the oldest run that started before an instant, how many of the last runs succeeded, and
-- the longest of these.
SELECT x.tenant, x.job_id, x.id AS execution_id, x.pool, x.started_ms,
       (SELECT json_object('successes', count(*), 'longest_ms', coalesce(max(s.finished_ms - s.started_ms), 0))
        FROM (SELECT latest.finished_ms, latest.started_ms
              FROM (SELECT y.state, y.finished_ms, y.started_ms FROM executions y
                    WHERE y.job_id = oldest.job_id ORDER BY y.id DESC LIMIT 100) latest
              WHERE latest.state = 5 LIMIT 20) s) AS usual
FROM (SELECT r.job_id, min(r.id) AS id FROM executions r INDEXED BY executions_running
      WHERE r.state = 1 AND r.job_id > ?1 AND r.started_ms < ?2 GROUP BY r.job_id ORDER BY r.job_id LIMIT ?3) oldest
     CROSS JOIN executions x ON x.job_id = oldest.job_id AND x.id = oldest.id
ORDER BY x.job_id;

-- name: alerts
-- Return a page of alerts of a tenant, newest first.
SELECT id, tenant, kind, about, job_id, job_name, pool, execution_id, endpoint, message, count, first_ms, last_ms,
       acknowledged_ms, acknowledged_by, recovered_ms
FROM alerts
WHERE tenant = ?1 AND id < ?2 AND coalesce((acknowledged_ms IS NULL) = ?3, 1) AND coalesce(kind = ?4, ?4 IS NULL)
      AND last_ms <= coalesce(?5, last_ms)
ORDER BY id DESC LIMIT ?6;

-- name: unread_alerts
-- Return a page of alerts that are not acknowledged, as `alerts`.
SELECT id, tenant, kind, about, job_id, job_name, pool, execution_id, endpoint, message, count, first_ms, last_ms,
       acknowledged_ms, acknowledged_by, recovered_ms
FROM alerts
WHERE tenant = ?1 AND id < ?2 AND acknowledged_ms IS NULL AND ?3 AND coalesce(kind = ?4, ?4 IS NULL)
      AND last_ms <= coalesce(?5, last_ms)
ORDER BY id DESC LIMIT ?6;

-- name: alerts_of_job
-- Return a page of alerts of a job, as `alerts`.
SELECT id, tenant, kind, about, job_id, job_name, pool, execution_id, endpoint, message, count, first_ms, last_ms,
       acknowledged_ms, acknowledged_by, recovered_ms
FROM alerts
WHERE tenant = ?1 AND job_id = ?7 AND id < ?2 AND coalesce((acknowledged_ms IS NULL) = ?3, 1)
      AND coalesce(kind = ?4, ?4 IS NULL) AND last_ms <= coalesce(?5, last_ms)
ORDER BY id DESC LIMIT ?6;

-- name: count_unread
-- Return how many alerts are not acknowledged, up to a limit.
SELECT count(*) FROM (SELECT 1 FROM alerts WHERE tenant = ?1 AND acknowledged_ms IS NULL LIMIT ?2);

-- name: alert
-- Return one alert.
SELECT id, tenant, kind, about, job_id, job_name, pool, execution_id, endpoint, message, count, first_ms, last_ms,
       acknowledged_ms, acknowledged_by, recovered_ms
FROM alerts WHERE tenant = ?1 AND id = ?2;

-- name: acknowledge
-- Mark alerts as acknowledged.
UPDATE alerts SET acknowledged_ms = ?3, acknowledged_by = ?4
WHERE id IN (SELECT value FROM json_each(?2)) AND tenant = ?1 AND acknowledged_ms IS NULL
RETURNING id;

-- name: prune_alerts
-- Delete alerts that are past retention.
DELETE FROM alerts WHERE id IN (SELECT id FROM alerts WHERE last_ms < ?1 ORDER BY last_ms LIMIT ?2)
RETURNING id;
