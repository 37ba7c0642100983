-- Occurrences of a job that a person has moved to another time, as JSON. NULL: none.
ALTER TABLE jobs ADD COLUMN moves TEXT;

-- When a paused job is resumed. NULL: when a user resumes it.
ALTER TABLE jobs ADD COLUMN paused_until_ms INTEGER;
CREATE INDEX jobs_to_resume ON jobs (paused_until_ms) WHERE paused_until_ms IS NOT NULL;
CREATE INDEX jobs_to_resume_of_tenants ON jobs (tenant, paused_until_ms) WHERE paused_until_ms IS NOT NULL;

DROP VIEW job_rows;
CREATE VIEW job_rows AS
SELECT *,
       json_object('id', id, 'tenant', tenant, 'revision', revision, 'state', state, 'spec', json(spec), 'anchor_ms', anchor_ms,
                   'payload', NULL, 'created_ms', created_ms, 'updated_ms', updated_ms, 'trace', trace, 'halted', halted,
                   'skips', json(coalesce(skips, '[]')), 'moves', json(coalesce(moves, '[]')),
                   'paused_until_ms', paused_until_ms) AS json,
       json_object('id', id, 'tenant', tenant, 'revision', revision, 'state', state, 'spec', json(spec), 'anchor_ms', anchor_ms,
                   'payload', payload, 'created_ms', created_ms, 'updated_ms', updated_ms, 'trace', trace,
                   'halted', halted, 'skips', json(coalesce(skips, '[]')), 'moves', json(coalesce(moves, '[]')),
                   'paused_until_ms', paused_until_ms) AS whole_json,
       EXISTS (SELECT 1 FROM dead d INDEXED BY dead_of_jobs
               WHERE d.tenant = jobs.tenant AND d.job_id = jobs.id AND d.retried_as IS NULL)
       AND EXISTS (SELECT 1 FROM dead d
                   WHERE d.retried_as IS NULL AND d.execution_id = (
                       SELECT x.id FROM executions x
                       WHERE x.job_id = jobs.id
                             AND x.id >= substr((SELECT max(y.id) FROM executions y WHERE y.job_id = jobs.id), 1, 13)
                       ORDER BY coalesce(x.finished_ms, 1 << 62) DESC, x.id DESC LIMIT 1)) AS died
FROM jobs;
