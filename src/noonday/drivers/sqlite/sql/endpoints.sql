-- name: end_former
-- End the former secrets of an endpoint: one without an end at a given instant, one with a later end now.
UPDATE secrets SET expires_ms = iif(expires_ms IS NULL, ?3, ?4)
WHERE tenant = ?1 AND endpoint = ?2 AND coalesce(expires_ms, ?4 + 1) > ?4 AND id <> ?5;

-- name: add_secret
-- Insert the secret that signs calls from now on. Returns no row if the tenant has, or had, a secret of this id.
INSERT INTO secrets (tenant, id, endpoint, kind, sealed, created_ms, expires_ms)
VALUES (:tenant, :id, :endpoint, :kind, :sealed, :created_ms, :expires_ms)
ON CONFLICT DO NOTHING RETURNING 1;

-- name: end_secret
-- End a secret.
UPDATE secrets SET expires_ms = ?3 WHERE tenant = ?1 AND id = ?2 AND coalesce(expires_ms, ?3 + 1) > ?3
RETURNING tenant, id, endpoint, kind, sealed, created_ms, expires_ms;

-- name: drop_ended
-- Delete the secrets of a tenant that ended long ago.
DELETE FROM secrets WHERE tenant = ?1 AND expires_ms < ?2;

-- name: secrets
-- Return the secrets of a tenant, newest first.
SELECT tenant, id, endpoint, kind, sealed, created_ms, expires_ms FROM secrets WHERE tenant = ?1 ORDER BY created_ms DESC, id DESC;

-- name: secrets_for
-- Return the secrets that may sign calls of some tenants to some endpoints.
SELECT DISTINCT s.tenant, s.id, s.endpoint, s.kind, s.sealed, s.created_ms, s.expires_ms
FROM json_each(?1) e CROSS JOIN secrets s ON s.tenant = e.value ->> 'tenant' AND s.endpoint IN ('', e.value ->> 'endpoint');

-- name: endpoint
-- Return an endpoint.
SELECT tenant, endpoint, settings, failing_since_ms, failures, last_success_ms, last_failure_ms, last_error, disabled_ms, disabled_why
FROM endpoints WHERE tenant = ?1 AND endpoint = ?2;

-- name: endpoints
-- Return a page of endpoints of a tenant, by name.
SELECT tenant, endpoint, settings, failing_since_ms, failures, last_success_ms, last_failure_ms, last_error, disabled_ms, disabled_why
FROM endpoints WHERE tenant = ?1 AND endpoint > ?2 ORDER BY endpoint LIMIT ?3;

-- name: put_settings
-- Save the settings of an endpoint.
INSERT INTO endpoints (tenant, endpoint, settings, updated_ms) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (tenant, endpoint) DO UPDATE SET settings = excluded.settings, updated_ms = excluded.updated_ms;

-- name: settings_of
-- Return the settings of some endpoints.
SELECT n.tenant, n.endpoint, n.settings
FROM json_each(?1) e
     CROSS JOIN endpoints n ON n.tenant = e.value ->> 'tenant' AND n.endpoint = e.value ->> 'endpoint' AND n.settings IS NOT NULL;

-- name: note_successes
-- Note successful calls and clear earlier failures. The time of the last success is exact to the minute.
INSERT INTO endpoints (tenant, endpoint, last_success_ms, updated_ms)
SELECT e.value ->> 'tenant', e.value ->> 'endpoint', ?2, ?2 FROM json_each(?1) e WHERE true
ON CONFLICT (tenant, endpoint) DO UPDATE
SET failing_since_ms = NULL, failures = 0, last_success_ms = excluded.last_success_ms, updated_ms = excluded.updated_ms
WHERE failing_since_ms IS NOT NULL OR coalesce(last_success_ms, 0) <= excluded.last_success_ms - 60000;

-- name: note_failures
-- Note failed calls. After a long silence, the count of failures begins again.
INSERT INTO endpoints (tenant, endpoint, failing_since_ms, failures, last_failure_ms, last_error, updated_ms)
SELECT e.value ->> 'tenant', e.value ->> 'endpoint', ?2, e.value ->> 'count', ?2, e.value ->> 'error', ?2 FROM json_each(?1) e WHERE true
ON CONFLICT (tenant, endpoint) DO UPDATE
SET failing_since_ms = iif(coalesce(last_failure_ms, 0) <= ?2 - ?3, ?2, coalesce(failing_since_ms, ?2)),
    failures = iif(coalesce(last_failure_ms, 0) <= ?2 - ?3, 0, failures) + excluded.failures,
    last_failure_ms = ?2, last_error = excluded.last_error, updated_ms = ?2;

-- name: failing_too_long
-- Return endpoints that have failed for longer than allowed.
SELECT tenant, endpoint, settings, failing_since_ms, failures, last_success_ms, last_failure_ms, last_error, disabled_ms, disabled_why
FROM endpoints
WHERE failing_since_ms IS NOT NULL AND disabled_ms IS NULL AND failures >= ?2
      AND coalesce(settings ->> 'disable_after_days', ?3) > 0
      AND failing_since_ms + coalesce(settings ->> 'disable_after_days', ?3) * 86400000 <= ?1
ORDER BY failing_since_ms LIMIT ?4;

-- name: disable
-- Disable an endpoint. With ?5, only if it has been failing since that instant.
INSERT INTO endpoints (tenant, endpoint, disabled_ms, disabled_why, unsettled_ms, updated_ms) SELECT ?1, ?2, ?4, ?3, ?4, ?4
WHERE ?5 IS NULL OR EXISTS (SELECT 1 FROM endpoints n WHERE n.tenant = ?1 AND n.endpoint = ?2 AND n.failing_since_ms = ?5)
ON CONFLICT (tenant, endpoint) DO UPDATE
SET disabled_ms = excluded.disabled_ms, disabled_why = excluded.disabled_why, unsettled_ms = excluded.unsettled_ms,
    updated_ms = excluded.updated_ms
WHERE endpoints.disabled_ms IS NULL
RETURNING 1;

-- name: add_incident
-- Insert an incident about a disabled endpoint.
INSERT INTO incidents (kind, tenant, execution_id, job_id, message, at_ms) VALUES ('DISABLED', ?1, '', '', ?2, ?3);

-- name: enable
-- Enable an endpoint and clear its failures.
UPDATE endpoints
SET disabled_ms = NULL, disabled_why = NULL, failing_since_ms = NULL, failures = 0, unsettled_ms = ?3, updated_ms = ?3
WHERE tenant = ?1 AND endpoint = ?2 AND disabled_ms IS NOT NULL
RETURNING 1;

-- name: unsettled
-- Return endpoints that were disabled or enabled and whose tasks are not all halted or resumed yet.
SELECT tenant, endpoint, settings, failing_since_ms, failures, last_success_ms, last_failure_ms, last_error, disabled_ms, disabled_why,
       unsettled_ms
FROM endpoints WHERE unsettled_ms IS NOT NULL ORDER BY unsettled_ms LIMIT ?1;

-- name: settled
-- Note that the tasks of an endpoint are halted or resumed, unless it was disabled or enabled again since.
UPDATE endpoints SET unsettled_ms = NULL WHERE tenant = ?1 AND endpoint = ?2 AND unsettled_ms = ?3;

-- name: tasks_to_halt
-- Return a page of jobs of an endpoint that are active.
SELECT j.id FROM jobs j INDEXED BY jobs_of_endpoints
WHERE j.tenant = ?1 AND j.endpoint IS NOT NULL AND j.endpoint = ?2 AND j.id > ?3 AND j.state = 0 AND j.pool = 'webhooks'
      AND (EXISTS (SELECT 1 FROM timeline t WHERE t.key = j.id AND t.due_ms IS NOT NULL)
           OR EXISTS (SELECT 1 FROM executions x INDEXED BY executions_open WHERE x.job_id = j.id AND x.state < 2))
ORDER BY j.id LIMIT ?4;

-- name: tasks_to_resume
-- Return a page of jobs of an endpoint that were halted for a given reason.
SELECT j.id FROM jobs j INDEXED BY jobs_of_endpoints
WHERE j.tenant = ?1 AND j.endpoint IS NOT NULL AND j.endpoint = ?2 AND j.id > ?3 AND j.state = 1 AND j.pool = 'webhooks'
      AND substr(j.halted, 1, length(?5)) = ?5
ORDER BY j.id LIMIT ?4;

-- name: forget
-- Delete endpoints that have no settings and have not been called for long.
DELETE FROM endpoints
WHERE (tenant, endpoint) IN (SELECT tenant, endpoint FROM endpoints
                             WHERE settings IS NULL AND updated_ms <= ?1 AND disabled_ms IS NULL AND unsettled_ms IS NULL LIMIT ?2)
RETURNING 1;
